#include "kernels/store/store_rows.h"

namespace tilepress {

void portable::store_block(const BlockResults& results) { store_rows(results); }

}  // namespace tilepress
