// Whether results of float layers may depend on how many rows a call has.
#pragma once

namespace tilepress {

// As set last; before that, whether TILEPRESS_BATCH_INVARIANT is set to anything but 0 when first asked for.
bool batch_invariant();

// Returns what held before.
bool set_batch_invariant(bool invariant);

}  // namespace tilepress
