// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Fills the page from the JSON in #runs, a list of {name, notes, lines}: the lines are those of a file of
// `logitless bench`, which the command has checked. Text reaches the page as textContent alone, so nothing
// becomes markup.
"use strict";
(() => {
  // Of one kind, in a chapter: a browser needs seconds for many more, and nobody looks through them.
  const kMostCharts = 24;
  // Contenders are told apart by colour and by marker; every colour has a contrast of at least 4.5 on white.
  const kColours = ["#57606a", "#0067a5", "#b84c00", "#00765a", "#a2317e", "#7a6200", "#6a3fb5", "#9b2c2c"];
  const kMarkers = ["rect", "circle", "triangle", "rectRot", "star", "crossRot"];
  const kBytes = [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]];
  const kSeconds = [[1e-6, "µs"], [1e-3, "ms"], [1, "s"]];

  const formatter = (least, most) =>
    new Intl.NumberFormat("en", {minimumSignificantDigits: least, maximumSignificantDigits: most}).format;
  const [three, percent, full] = [formatter(3, 3), formatter(1, 2), formatter(1, 12)];
  const unitOf = (value, units) => units.findLast(([size]) => value >= size) ?? units[0];
  function text(value, units) {
    const [size, name] = unitOf(value, units);
    return `${size === 1 && name === "B" ? full(value) : three(value / size)} ${name}`;
  }
  const quotient = (a, b) => a > 0 && b > 0 ? `${three(a / b)}×` : "–";
  function range(values) {
    const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => `${three(value)}×`);
    return low === high ? low : `${low} to ${high}`;
  }

  function add(parent, tag, words = "", attributes = {}) {
    const element = parent.appendChild(document.createElement(tag));
    element.textContent = words;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }
  function addList(parent, facts) {
    const list = add(parent, "dl");
    for (const [name, value] of facts) {
      add(list, "dt", name);
      add(list, "dd", [value].flat().map((item) => item instanceof Object ? JSON.stringify(item) : item).join(", "));
    }
  }

  const ok = (point, name) => point.contenders.find((c) => c.name === name && c.status === "ok");
  const sizeOf = ({shape}) => shape.tokens * shape.hidden * shape.vocab;
  const sizes = ({shape}) => `${full(shape.tokens)} tokens, ${full(shape.vocab)} vocabulary entries, ` +
    `hidden size ${full(shape.hidden)}`;
  const types = ({shape}) => `${shape.dtype}, ${shape.layout}`;
  const placeOf = (point, except) =>
    Object.entries(point.at).filter(([key]) => key !== except).map((pair) => pair.join(" = ")).join(", ");

  // What each contender saves and costs beside dense, at the largest shape at which both ran.
  function addHeadline(section, {contenders, points}) {
    const others = contenders.filter((name) => name !== "dense");
    const both = points.filter((point) => ok(point, "dense") && others.some((name) => ok(point, name)));
    const size = Math.max(...both.map(sizeOf));
    const largest = both.filter((point) => sizeOf(point) === size);
    if (largest.length === 0) {
      add(section, "p", "At no point did dense and another contender both run, so there is nothing to compare.");
      return;
    }
    const [first, ...more] = largest;
    const which = more.length > 0 ? `over ${largest.length} points` : types(first);
    add(section, "p", `Beside dense, at ${sizes(first)}, ${which}:`);
    const list = add(section, "ul");
    for (const name of others) {
      const pairs = largest.map((point) => [ok(point, "dense"), ok(point, name)]).filter(([, own]) => own);
      const memory = pairs.filter(([dense, own]) => dense.extra_peak_bytes > 0 && own.extra_peak_bytes > 0);
      const time = pairs.filter(([dense, own]) => dense.median_s > 0 && own.median_s > 0);
      if (time.length === 0) continue;
      const saved = memory.map(([dense, own]) => dense.extra_peak_bytes / own.extra_peak_bytes);
      const taken = time.map(([dense, own]) => own.median_s / dense.median_s);
      const item = add(list, "li");
      add(item, "b", name);
      const words = [saved.length > 0 ? `${range(saved)} less memory` : "", `${range(taken)} the time`];
      const remark = name === "forward" ? " (the loss alone, no gradients)" : "";
      item.append(`${remark}: ${words.filter(Boolean).join(", ")}`);
    }
  }

  function addNotes(section, {header, points, notes}) {
    const failures = points.flatMap((point) => point.contenders).filter((c) => c.status !== "ok").length;
    const expected = header.sweep.reduce((product, {values}) => product * values.length, 1);
    const all = [...notes, ...header.environment.warnings ?? []];
    if (failures > 0) all.unshift(`Measurements that failed: ${failures}; the table says why.`);
    if (points.length < expected) {
      all.unshift(`The run is not complete: ${points.length} of ${expected} points are in the file.`);
    }
    for (const note of all) add(section, "p", note, {class: "note"});
  }

  const kSizes = {
    seq_len: "tokens", batch_size: "tokens", "model.vocab_size": "vocab", "model.hidden_size": "hidden",
  };

  // Where points lie along a swept key: at the size of the shape that it sets, at its values where all are
  // numbers, or side by side. A run without a sweep has one place.
  function axisOf({key, values}) {
    const size = kSizes[key];
    if (size) return {label: size, numbers: true, x: (point) => point.shape[size]};
    const numbers = values.every((value) => value.trim() !== "" && Number.isFinite(Number(value)));
    return {label: key ?? "", numbers, x: ({at}) => numbers ? Number(at[key]) : at[key] ?? ""};
  }

  function draw(parent, title, value, units, axis, points, contenders) {
    const figure = add(parent, "figure");
    add(figure, "figcaption", title);
    const canvas = add(add(figure, "div", "", {class: "plot"}), "canvas", "", {role: "img"});
    const all = points.flatMap((point) => point.contenders).filter((c) => c.status === "ok").map(value);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const log = low > 0 && high > 10 * low;
    const [size, unit] = unitOf(log ? Math.sqrt(low * high) : high, units);
    const places = [...new Set(points.map(axis.x))];
    if (axis.numbers) places.sort((a, b) => a - b);
    const datasets = contenders.map((label, index) => {
      const ran = points.filter((point) => ok(point, label));
      const data = ran.map((point) => ({x: axis.x(point), y: value(ok(point, label)) / size}));
      data.sort((a, b) => places.indexOf(a.x) - places.indexOf(b.x));
      const color = kColours[index % kColours.length];
      const look = {borderColor: color, backgroundColor: color, pointStyle: kMarkers[index % kMarkers.length]};
      return {label, data, ...look, pointRadius: 5, showLine: axis.numbers};
    }).filter(({data}) => data.length > 0);
    const tell = ({x, y}) => `${text(y * size, units)} at ${x}`;
    const told = datasets.map(({label, data}) => `${label}: ${data.map(tell).join(", ")}`);
    canvas.setAttribute("aria-label", `${title}. ${told.join("; ")}`);
    new Chart(canvas, {
      type: "line",
      data: {labels: places, datasets},
      options: {
        animation: false,
        maintainAspectRatio: false,
        interaction: {mode: "nearest", intersect: false},
        scales: {
          x: {
            type: !axis.numbers ? "category" : places[0] > 0 ? "logarithmic" : "linear",
            title: {display: true, text: axis.label},
            grid: {display: false},
            offset: true,
            afterBuildTicks(scale) {
              if (axis.numbers) scale.ticks = places.map((place) => ({value: place}));
            },
            ticks: {autoSkip: false, callback: (place, at) => axis.numbers ? full(place) : places[at]},
          },
          y: {
            type: log ? "logarithmic" : "linear",
            beginAtZero: !log,
            suggestedMax: 1.2 * high / size,
            ticks: {
              callback: (tick) => !log || /^[125]/.test(tick.toExponential()) ? `${full(tick)} ${unit}` : "",
            },
          },
        },
        plugins: {
          legend: {labels: {usePointStyle: true}},
          tooltip: {callbacks: {title: () => "", label: ({dataset, raw}) => `${dataset.label}: ${tell(raw)}`}},
        },
      },
    });
  }

  // A chapter against each swept key of numbers, or else of names; in it memory and time for each combination
  // of the other keys' values.
  function addCharts(section, {header, points, contenders}) {
    const swept = header.sweep.filter(({values}) => values.length > 1);
    const numbers = swept.filter((key) => axisOf(key).numbers);
    const keys = numbers.length > 0 ? numbers : swept.length > 0 ? swept : [{values: []}];
    for (const key of keys) {
      const axis = axisOf(key);
      add(section, "h3", axis.label ? `Against ${axis.label}` : "Memory and time");
      const slices = new Map();
      for (const point of points) {
        const place = placeOf(point, key.key);
        slices.set(place, [...slices.get(place) ?? [], point]);
      }
      if (slices.size > kMostCharts) {
        const words = `Of ${slices.size} combinations of the other keys the first ${kMostCharts} are drawn.`;
        add(section, "p", words);
      }
      for (const [place, slice] of [...slices].slice(0, kMostCharts)) {
        const row = add(section, "div", "", {class: "drawings"});
        const suffix = place ? `, ${place}` : "";
        draw(row, `Extra peak memory${suffix}`, (c) => c.extra_peak_bytes, kBytes, axis, slice, contenders);
        draw(row, `Time of one call${suffix}`, (c) => c.median_s, kSeconds, axis, slice, contenders);
      }
    }
  }

  // The columns of the table: a heading, and what a contender has there; dense is that of its point, where it
  // ran.
  const kColumns = [
    ["time", (c) => text(c.median_s, kSeconds)],
    ["spread", (c) => c.median_s > 0 ? `± ${percent(100 * c.spread_s / c.median_s)} %` : "–"],
    ["time ÷ dense", (c, dense) => quotient(c.median_s, dense?.median_s)],
    ["first call", (c) => text(c.first_s, kSeconds)],
    ["efficiency", (c) => c.gemm_efficiency == null ? "–" : `${percent(100 * c.gemm_efficiency)} %`],
    ["extra peak", (c) => text(c.extra_peak_bytes, kBytes)],
    ["dense ÷ peak", (c, dense) => quotient(dense?.extra_peak_bytes, c.extra_peak_bytes)],
    ["workspace", (c) => c.plan ? text(c.workspace_bytes, kBytes) : "–"],
    ["loss", (c) => c.loss == null ? "not finite" : formatter(1, 8)(c.loss)],
    ["plan", (c) => c.plan || "–"],
  ];

  function addTable(section, {points}) {
    add(section, "h3", "All points");
    add(section, "p", "Time: median of the timed calls. Spread: half the distance between their quartiles. First " +
      "call: before any warm-up. Efficiency: the plan's own multiply-adds ÷ time ÷ the rate of one large GEMM in the " +
      "same run. Extra peak: memory above inputs and outputs. Workspace: what the plan asks for.", {class: "quiet"});
    const table = add(add(section, "div", "", {class: "scroll"}), "table");
    const head = add(add(table, "thead"), "tr");
    const headings = ["contender", ...kColumns.map(([heading]) => heading)];
    for (const heading of headings) add(head, "th", heading, {scope: "col"});
    for (const point of points) {
      const body = add(table, "tbody");
      const rate = point.gemm_rate_flops ? `; GEMM ${three(point.gemm_rate_flops / 1e9)} GFLOP/s` : "";
      const words = [placeOf(point), `${point.task}, level ${point.level}`, `${sizes(point)}, ${types(point)}${rate}`];
      const about = words.filter(Boolean).join("; ");
      add(add(body, "tr"), "th", about, {scope: "rowgroup", colspan: kColumns.length + 1});
      for (const contender of point.contenders) {
        const row = add(body, "tr");
        add(row, "th", contender.name, {scope: "row"});
        if (contender.status === "ok") {
          for (const [, cell] of kColumns) add(row, "td", cell(contender, ok(point, "dense")));
        } else {
          add(row, "td", `failed: ${contender.message}`, {class: "error", colspan: kColumns.length});
        }
      }
    }
  }

  function addSetup(section, {header}) {
    const {type, schema, settings, sweep, environment, ...rest} = header;
    const facts = Object.entries(environment).filter(([name]) => name !== "warnings").map(([name, value]) =>
      [name, name.endsWith("_bytes") && value > 0 ? text(value, kBytes) : value]);
    add(section, "h3", "How it was measured");
    addList(section, [...Object.entries(rest), ...sweep.map(({key, values}) => [`sweep of ${key}`, values])]);
    add(section, "h3", "Settings");
    addList(section, settings.map((setting) => setting.split(/=(.*)/s)));
    add(section, "h3", "The machine");
    addList(section, facts);
  }

  const runs = JSON.parse(document.getElementById("runs").textContent);
  const main = document.querySelector("main");
  for (const {name, notes, lines} of runs) {
    const [header, ...points] = lines;
    const named = points.flatMap((point) => point.contenders.map((contender) => contender.name));
    const run = {header, points, notes, contenders: [...new Set([...header.contenders, ...named])]};
    const section = add(main, "section");
    add(section, "h2", name);
    const {cpu, threads, simd_target, gemm_backend, blas_core} = header.environment;
    const machine = [`logitless ${header.version}`, cpu, `${threads} threads`, simd_target, gemm_backend, blas_core];
    add(section, "p", [...machine, header.started.slice(0, 10)].filter(Boolean).join(", "), {class: "quiet"});
    for (const part of [addHeadline, addNotes, addCharts, addTable, addSetup]) part(section, run);
  }
})();
