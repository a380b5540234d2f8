// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/call_partials.h"

namespace logitless::fold {

size_t CallPartials::wire_bytes(Walk walk, int64_t row) const {
  size_t bytes = 0;
  for (const Partials* partials : of(walk)) bytes += partials->wire_bytes(row);
  return bytes;
}

std::byte* CallPartials::put(Walk walk, int64_t row, int64_t place, const stats::Columns& columns,
                             std::byte* to) const {
  for (const Partials* partials : of(walk)) to = partials->put(row, place, columns, to);
  return to;
}

std::byte* CallPartials::put_empty(Walk walk, int64_t row, std::byte* to) const {
  for (const Partials* partials : of(walk)) to = partials->put_empty(row, to);
  return to;
}

const std::byte* CallPartials::join(Walk walk, int64_t row, int64_t place, bool first, const std::byte* from,
                                    stats::Columns& columns) const {
  for (const Partials* partials : of(walk)) from = partials->join(row, place, first, from, columns);
  return from;
}

}  // namespace logitless::fold
