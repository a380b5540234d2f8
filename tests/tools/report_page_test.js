// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the script of a report's page makes of its data, without a browser: elements that keep their text, and
// charts that keep what they were told to draw.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");

const root = path.join(__dirname, "..", "..");
const script = fs.readFileSync(path.join(root, "tools/report/page.js"), "utf8");
const tokens = fs.readFileSync(path.join(root, "tests/data/tokens.jsonl"), "utf8").trim().split("\n").map(JSON.parse);

class Element {
  constructor(tag) { Object.assign(this, {tag, children: [], attributes: {}}); }
  appendChild(child) { this.children.push(child); return child; }
  append(text) { this.children.push(text); }
  setAttribute(name, value) { this.attributes[name] = value; }
  set textContent(text) { this.children = text === "" ? [] : [String(text)]; }
  get textContent() { return this.children.map((child) => child.textContent ?? child).join(""); }
  all(tag) {
    return this.children.flatMap((child) => [...child.tag === tag ? [child] : [], ...child.all?.(tag) ?? []]);
  }
  texts(tag) { return this.all(tag).map((element) => element.textContent); }
}

// The page of files, each a list of parsed lines, and its charts.
function page(...files) {
  const main = new Element("main"), charts = [];
  const runs = new Element("script");
  runs.textContent = JSON.stringify(files.map((lines, index) => ({name: `run${index}.jsonl`, notes: [], lines})));
  class Chart { constructor(canvas, config) { charts.push({canvas, ...config}); } }
  const document = {createElement: (tag) => new Element(tag), getElementById: () => runs, querySelector: () => main};
  new Function("document", "Chart", script)(document, Chart);
  return {main, charts, rows: main.all("tr").map((row) => row.children.map((cell) => cell.textContent))};
}

const ran = (name, median_s, extra_peak_bytes) => ({name, status: "ok", loss: 2.5, first_s: 2 * median_s, median_s,
  spread_s: median_s / 64, extra_peak_bytes, workspace_bytes: extra_peak_bytes, plan: name});
const failed = (name, message) => ({name, status: "error", message});
// A run over the product of `sweep`, {key: values}, of which `contenders_of` says the contenders of a point.
function run(sweep, contenders_of) {
  const entries = Object.entries(sweep);
  let points = [{}];
  for (const [key, values] of entries) points = points.flatMap((at) => values.map((value) => ({...at, [key]: value})));
  const types = {dtype: "float32", layout: "vocab_hidden"};
  const shape = (at) => ({tokens: Number(at.seq_len ?? 128), hidden: 64, vocab: 1000, ...types});
  const keys = entries.map(([key, values]) => ({key, values}));
  return [
    {...tokens[0], settings: [], contenders: ["dense", "one_pass"], sweep: keys},
    ...points.map((at, index) => ({type: "point", at, task: "cross_entropy", level: "fused", shape: shape(at),
      contenders: contenders_of(at, index)})),
  ];
}
const both = () => [ran("dense", 1, 8000), ran("one_pass", 1, 1000)];

test("the table has every point and contender", () => {
  const {rows} = page(tokens);
  assert.strictEqual(rows.length, 1 + 3 + 12);
  assert.match(rows[6][0], /^seq_len = 1024; cross_entropy, level fused; 1,024 tokens, 151,936 voc.*; GEMM 190 GFLOP/);
  assert.deepStrictEqual(rows.find((row, index) => index > 6 && row[0] === "two_pass"),
    ["two_pass", "5.00 s", "± 1 %", "1.25×", "7.50 s", "97 %", "13.3 MiB", "45.0×", "13.3 MiB", "12.25", "two_pass"]);
  assert.deepStrictEqual(rows[12], ["dense", 'failed: cannot allocate the logits <[4096, 151936]> & "more"']);
});

test("the headline divides at the largest shape at which dense and another contender ran", () => {
  const {main} = page(tokens);
  assert.strictEqual(main.texts("p")[1],
    "Beside dense, at 1,024 tokens, 151,936 vocabulary entries, hidden size 1,536, float32, hidden_vocab:");
  assert.deepStrictEqual(main.texts("li"), ["one_pass: 2.91× less memory, 1.01× the time",
    "two_pass: 45.0× less memory, 1.25× the time",
    "forward (the loss alone, no gradients): 99.3× less memory, 0.340× the time"]);
  const blocks = page(run({"kernel.block_size": ["256", "512"]}, (at, index) =>
    [ran("dense", 1, 8000), ran("one_pass", index ? 1.2 : 0.9, index ? 2000 : 1000)]));
  assert.match(blocks.main.texts("p")[1], /hidden size 64, over 2 points:$/);
  assert.deepStrictEqual(blocks.main.texts("li"), ["one_pass: 4.00× to 8.00× less memory, 0.900× to 1.20× the time"]);
  const alone = page(run({}, () => [failed("dense", "no"), ran("one_pass", 1, 1)]));
  assert.match(alone.main.texts("p")[1], /nothing to compare/);
});

test("a chart has a line a contender, in the unit that suits it, and says in words what it shows", () => {
  const {charts} = page(tokens);
  assert.strictEqual(charts.length, 2);
  const [memory, time] = charts;
  assert.deepStrictEqual(memory.data.datasets.map(({label}) => label), ["dense", "one_pass", "two_pass", "forward"]);
  assert.deepStrictEqual(memory.data.datasets.map(({data}) => data.length), [2, 3, 3, 3]);
  assert.deepStrictEqual({...memory.data.datasets[2].data[1]}, {x: 1024, y: 13893632 / 2 ** 20});
  assert.strictEqual(memory.options.scales.y.type, "logarithmic");
  assert.strictEqual(memory.options.scales.y.ticks.callback(20), "20 MiB");
  assert.strictEqual(memory.options.scales.y.ticks.callback(30), "");
  assert.strictEqual(time.data.datasets[2].data[1].y, 5);
  const told = memory.canvas.attributes["aria-label"];
  assert.match(told, /^Extra peak memory\. dense: 148 MiB at 256, 596 MiB at 1024; one_pass: /);
  const looks = memory.data.datasets.map(({borderColor, pointStyle}) => borderColor + pointStyle);
  assert.strictEqual(new Set(looks).size, 4);
});

test("numbers lie on a scale in their order and are joined, names lie side by side", () => {
  const x_of = (key, values) => {
    const {charts: [chart]} = page(run({[key]: values}, both));
    const {type, title} = chart.options.scales.x;
    return [type, title.text, chart.data.labels.join(), chart.data.datasets[0].showLine];
  };
  assert.deepStrictEqual(x_of("seq_len", ["1024", "128"]), ["logarithmic", "tokens", "128,1024", true]);
  assert.deepStrictEqual(x_of("temperature", ["0", "1"]), ["linear", "temperature", "0,1", true]);
  assert.deepStrictEqual(x_of("kernel.block_size", ["auto", "512"]),
    ["category", "kernel.block_size", "auto,512", false]);
  assert.deepStrictEqual(x_of("model.dtype", ["float32", "float64"]),
    ["category", "model.dtype", "float32,float64", false]);
});

test("every key of numbers has a chapter, with a row for each value of the others", () => {
  const three = page(run({seq_len: ["1", "2"], temperature: ["1", "2", "3"], "model.dtype": ["a", "b"]}, both));
  assert.deepStrictEqual(three.main.texts("h3").slice(0, 2), ["Against tokens", "Against temperature"]);
  assert.strictEqual(three.charts.length, 2 * (3 * 2 + 2 * 2));
  assert.strictEqual(three.main.texts("figcaption")[2], "Extra peak memory, temperature = 1, model.dtype = b");
  assert.strictEqual(page(run({}, both)).main.texts("h3")[0], "Memory and time");
  const many = page(run({seq_len: ["1", "2"], "model.name": Array.from({length: 100}, (_, i) => `n${i}`)}, both));
  assert.strictEqual(many.charts.length, 2 * 24);
  assert.ok(many.main.texts("p").includes("Of 100 combinations of the other keys the first 24 are drawn."));
  assert.strictEqual(many.rows.length, 1 + 200 * 3);
});

test("notes tell of failures, missing points and warnings", () => {
  const lines = run({seq_len: ["1", "2"]}, () => [ran("dense", 1, 1), failed("one_pass", "no")]).slice(0, 2);
  const is_note = ({attributes}) => attributes.class === "note";
  const notes = page(lines).main.all("p").filter(is_note).map((p) => p.textContent);
  assert.deepStrictEqual(notes, ["The run is not complete: 1 of 2 points are in the file.",
    "Measurements that failed: 1; the table says why.", "the BLAS core is narrower than the CPU"]);
});

test("settings and machine are there, and files are sections in their order", () => {
  const {main} = page(tokens, run({}, both));
  const facts = main.texts("dt").map((name, index) => `${name}: ${main.texts("dd")[index]}`);
  for (const fact of ["model.vocab_size: 151936", "iters: 5", "inputs: random", "sweep of seq_len: 256, 1024, 4096",
    "blas_core: Haswell", "l2_bytes: 1.00 MiB", "simd_targets: AVX2, plain", 'cpu: Example <CPU> & "Co"']) {
    assert.ok(facts.includes(fact), fact);
  }
  assert.deepStrictEqual(main.texts("h2"), ["run0.jsonl", "run1.jsonl"]);
});

test("extreme and absent figures leave no word of the machine's on the page", () => {
  const peer = {...ran("torch_dense", 2, 8000), plan: "", workspace_bytes: 0, loss: null};
  const files = [
    run({seq_len: ["128", "256"]}, (at, index) => [ran("dense", index * 1e24, index * 2 ** 60), ran("one_pass", index * 1e-12, 0)]),
    run({seq_len: ["128"]}, () => [failed("dense", ""), failed("one_pass", "x".repeat(5000))]),
    run({}, () => [ran("dense", 1, 8000), peer]),
  ];
  const {main, charts, rows} = page(...files);
  assert.doesNotMatch(main.textContent, /NaN|Infinity|undefined|\[object/);
  assert.deepStrictEqual(rows.at(-1).slice(-3), ["–", "not finite", "–"]);
  for (const {data, options} of charts) {
    if (options.scales.y.type !== "logarithmic") continue;
    for (const {data: marks} of data.datasets) for (const {y} of marks) assert.ok(y > 0);
  }
});

test("letters and lines stand out on white", () => {
  const css = fs.readFileSync(path.join(root, "tools/report/page.css"), "utf8");
  const lines = script.match(/kColours = .*/)[0];
  const colours = [...css.matchAll(/--(?:ink|quiet|error): #([0-9a-f]{6})/g), ...lines.matchAll(/#([0-9a-f]{6})/g)];
  assert.strictEqual(colours.length, 3 + 8);
  for (const [, hex] of colours) {
    const parts = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
    const linear = parts.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    assert.ok(1.05 / (luminance + 0.05) >= 4.5, hex);
  }
});
