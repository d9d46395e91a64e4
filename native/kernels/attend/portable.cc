#include "kernels/attend/attend_head.h"

namespace tilepress {

void portable::attend_head(const HeadTokens& head, float* weights, float* out) { attend_any(head, weights, out); }

}  // namespace tilepress
