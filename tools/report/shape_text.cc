// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/shape_text.h"

#include <algorithm>

#include "report/units.h"

namespace logitless::report {

std::vector<const Point*> all_points(const BenchRun& run) {
  std::vector<const Point*> points;
  for (const Point& point : run.points) points.push_back(&point);
  return points;
}

std::string common_shape(const std::vector<const Point*>& points) {
  const Shape& shape = points.front()->shape;
  std::string text;
  const auto add = [&](auto member, const std::string& words) {
    const auto same = [&](const Point* other) { return other->shape.*member == shape.*member; };
    if (std::all_of(points.begin(), points.end(), same)) text += (text.empty() ? "" : ", ") + words;
  };
  add(&Shape::tokens, grouped(shape.tokens) + " tokens");
  add(&Shape::vocab, grouped(shape.vocab) + " vocabulary entries");
  add(&Shape::hidden, "hidden size " + grouped(shape.hidden));
  add(&Shape::dtype, shape.dtype);
  add(&Shape::layout, shape.layout);
  return text;
}

}  // namespace logitless::report
