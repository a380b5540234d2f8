// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws the page's charts with Chart.js: object n of the JSON in #charts (report/page.h describes it) on
// canvas n.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const canvases = document.querySelectorAll("canvas");
  const probe = document.body.appendChild(document.createElement("i"));  // asks the style sheet
  let drawn = [];

  const style = (name) => getComputedStyle(probe).getPropertyValue(name).trim();

  // A contender's colour, dashes and marker, as the style sheet says.
  function lookOf(contender) {
    probe.dataset.contender = contender;
    return {colour: style("color"), dash: JSON.parse(style("--dash")), marker: style("--marker")};
  }

  // At most six lines of sixty letters, because an error message may be long.
  function wrapped(text) {
    const lines = text.match(/.{1,60}(\s|$)|.{60}/g) ?? [text];
    return lines.length <= 6 ? lines : [...lines.slice(0, 6), "…"];
  }

  // Draws value ± spread over the marks.
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const axis = chart.scales.y;
      chart.data.datasets.forEach((dataset, index) => dataset.data.forEach((mark, at) => {
        if (!(mark.spread > 0) || !chart.isDatasetVisible(index)) return;
        const {x, y} = chart.getDatasetMeta(index).data[at];
        const low = axis.getPixelForValue(Math.max(mark.y - mark.spread, axis.min));
        const high = axis.getPixelForValue(mark.y + mark.spread);
        chart.ctx.lineWidth = 1.2;
        chart.ctx.strokeStyle = dataset.borderColor;
        chart.ctx.stroke(new Path2D(`M${x} ${low}V${high}M${x - 4} ${low}h8M${x - 4} ${high}h8`));
      }));
    },
  };

  // The ends of the axis of values, with a little room. All charts of a metric share them.
  function ends({range: [low, high], log}) {
    return log ? [low / 1.5, high * 2] : [0, high * 1.1];
  }

  function valueAxis(chart) {
    const [low, high] = ends(chart).map((value) => value / chart.unit.size);
    return {
      type: chart.log ? "logarithmic" : "linear",
      ...(chart.log ? {min: low, max: high} : {suggestedMin: low, suggestedMax: high}),
      grid: {drawBorder: false, color: ({tick}) => tick?.label === "" ? "transparent" : style("--grid")},
      ticks: {
        autoSkip: !(chart.log && high < 3000 * low),  // Three powers of ten have room for 1, 2 and 5 of each.
        callback(value, index, ticks) {
          const text = Chart.Ticks.formatters[chart.log ? "logarithmic" : "numeric"].call(this, value, index, ticks);
          return text && value.toLocaleString("en", {maximumSignificantDigits: 6}) + chart.unit.suffix;
        },
      },
    };
  }

  // The axis of a swept key has its ticks at the values that were swept.
  function sweptAxis({label, log, ticks}) {
    const labels = new Map(ticks), [low, high] = [ticks[0][0], ticks.at(-1)[0]];
    const room = log ? (high / low) ** 0.05 : (high - low) * 0.05 || 1;
    return {
      type: log ? "logarithmic" : "linear",
      min: log ? low / room : low - room,
      max: log ? high * room : high + room,
      title: {display: true, text: label},
      grid: {display: false},
      afterBuildTicks: (axis) => axis.ticks = ticks.map(([value]) => ({value})),
      ticks: {maxRotation: 0, callback: (value) => labels.get(value)},
    };
  }

  // Where a mark stands: one that failed at the top, below those that failed there too, and a 0 on a
  // logarithmic axis at its foot.
  function placed(mark, chart, failures) {
    const [low, high] = ends(chart);
    let value = chart.log ? Math.max(mark.value, low) : mark.value;
    if (mark.failed) {
      const share = 0.98 - 0.07 * failures.filter((x) => x === mark.x).length;
      failures.push(mark.x);
      value = chart.log ? low * (high / low) ** share : high * share;
    }
    return {...mark, y: value / chart.unit.size, spread: mark.spread / chart.unit.size};
  }

  function datasetsOf(chart) {
    const failures = [];
    return chart.series.map(({name, marks}) => {
      const look = lookOf(name);
      return {
        label: name,
        data: marks.map((mark) => placed(mark, chart, failures)),
        borderColor: look.colour,
        backgroundColor: look.colour,
        borderDash: look.dash,
        borderWidth: 1.8,
        showLine: chart.x.joined,
        segment: {borderColor: ({p0, p1}) => p0.raw?.failed || p1.raw?.failed ? "transparent" : undefined},
        pointStyle: marks.map((mark) => mark.failed ? "crossRot" : look.marker),
        pointBorderWidth: marks.map((mark) => mark.failed ? 2 : 1),
        pointRadius: 5,
        pointHoverRadius: 6,
        clip: 8,
      };
    });
  }

  // A label shows its contender's marker, whether the first mark failed or not.
  function legendLabels(chart) {
    const labels = Chart.defaults.plugins.legend.labels.generateLabels(chart);
    return labels.map((label) => ({...label, pointStyle: lookOf(label.text).marker}));
  }

  function draw(chart, canvas) {
    return new Chart(canvas, {
      type: "line",
      data: {datasets: datasetsOf(chart)},
      plugins: [whiskers],
      options: {
        scales: {x: sweptAxis(chart.x), y: valueAxis(chart)},
        animation: false,
        maintainAspectRatio: false,
        interaction: {mode: "nearest", intersect: false},
        plugins: {
          legend: {labels: {usePointStyle: true, boxHeight: 7, generateLabels: legendLabels}},
          tooltip: {displayColors: false, callbacks: {title: () => "", label: (item) => wrapped(item.raw.note)}},
        },
      },
    });
  }

  function drawAll() {
    drawn.forEach((chart) => chart.destroy());
    Chart.defaults.color = style("--quiet");
    Chart.defaults.borderColor = style("--grid");
    Chart.defaults.font.family = style("font-family");
    drawn = charts.map((chart, index) => draw(chart, canvases[index]));
  }

  // The style sheet's colours follow the reader's colour scheme; paper is white.
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", drawAll);
  drawAll();
})();
