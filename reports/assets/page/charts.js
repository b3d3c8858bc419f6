// Curves. All of memory's curves share one window on the time axis and one cursor.
const QUANTITIES = ["reserved", "active", "allocated", "requested"];
const LOOK = { reserved: ["--c0", []], active: ["--c1", []], allocated: ["--c2", [6, 3]], requested: ["--c6", [2, 2]] };
const charts = [];

// Per point of the series: its highest value, its lowest, and the last, so that no extreme is lost.
function curve(series, axis) {
  const first = series["first_" + axis], last = series["last_" + axis];
  const x = new Array(first.length * 3);
  for (let i = 0; i < first.length; i++) { x[3 * i] = x[3 * i + 1] = first[i]; x[3 * i + 2] = last[i]; }
  const y = name => {
    const [low, high, end] = series[name];
    const values = new Array(low.length * 3);
    for (let i = 0; i < low.length; i++) { values[3 * i] = high[i]; values[3 * i + 1] = low[i]; values[3 * i + 2] = end[i]; }
    return values;
  };
  return [x, y];
}

const axisWords = axis => axis === "at" ? showNanos : showCount;

function axes(axis, words) {
  const common = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line") }, font: "12px system-ui, sans-serif" };
  return [
    { ...common, values: (u, ticks) => ticks.map(axisWords(axis)), space: 80 },
    { ...common, values: (u, ticks) => ticks.map(words), size: 84, incrs: words === showBytes ? Array.from({ length: 50 }, (_, i) => 2 ** i) : undefined },
  ];
}

// The program's spans as bands along the upper edge.
function spanBands(data, state) {
  return {
    hooks: {
      draw: u => {
        const { ctx, bbox } = u;
        ctx.save();
        ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
        ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.textBaseline = "top";
        const place = at => u.valToPos(state.axis === "at" ? at : state.eventAt(at), "x", true);
        const rows = [];
        for (const [name, start, end] of data.spans) {
          const left = place(start), right = end == null ? bbox.left + bbox.width : place(end);
          if (right < bbox.left || left > bbox.left + bbox.width) continue;
          let row = rows.findIndex(edge => edge <= left);
          if (row < 0) row = rows.length;
          if (row > 3) continue;
          rows[row] = right;
          const height = 13 * devicePixelRatio, top = bbox.top + row * height;
          ctx.globalAlpha = 0.18; ctx.fillStyle = css("--c4");
          ctx.fillRect(left, top, Math.max(1, right - left), height - 1);
          ctx.globalAlpha = 1; ctx.fillStyle = css("--soft");
          const from = Math.max(left, bbox.left);
          if (right - from > ctx.measureText(name).width + 6) ctx.fillText(name, from + 3, top + 1);
        }
        ctx.restore();
      },
    },
  };
}

function drawCharts(data) {
  const host = $("charts");
  if (!host) return;
  const runs = data.runs.filter(run => run.series.first_event.length);
  for (const run of runs) {
    for (const key of ["first_event", "last_event", "first_at", "last_at"]) run.series[key] = sums(run.series[key]);
    for (const name of QUANTITIES) run.series[name] = run.series[name].map(sums);
  }
  const times = runs.some(run => run.series.last_at.at(-1) > 0);
  const state = { axis: times ? "at" : "event", window: null };
  if (!times) { $("axis").value = "event"; $("axis").disabled = true; }
  state.eventAt = at => {
    const series = runs[0].series;
    let low = 0, high = series.last_at.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (series.last_at[middle] < at) low = middle + 1; else high = middle; }
    return series.first_event[low];
  };
  const sync = uPlot.sync("memory");
  const same = runs.every(run => run.series.first_event.length === runs[0].series.first_event.length && run.series.last_event.at(-1) === runs[0].series.last_event.at(-1));

  function setWindow(from, to) {
    const [low, high] = state.full;
    if (to - from >= high - low) { from = low; to = high; }
    const span = Math.max(to - from, state.axis === "at" ? 10 : 2);
    from = Math.min(Math.max(from, low), high - span);
    state.window = [from, from + span];
    charts.forEach(chart => chart.setScale("x", { min: state.window[0], max: state.window[1] }));
    const words = axisWords(state.axis);
    $("window").textContent = `${words(state.window[0])} to ${words(state.window[1])}`;
  }

  const full = () => {
    const ends = runs.map(run => [run.series["first_" + state.axis][0], run.series["last_" + state.axis].at(-1)]);
    return [Math.min(...ends.map(e => e[0])), Math.max(...ends.map(e => e[1]), 1)];
  };

  function make(title, x, series, height) {
    const box = element("div", null, "chart");
    box.append(element("h3", title));
    host.append(box);
    const chart = new uPlot({
      width: box.clientWidth, height, pxAlign: 0,
      cursor: { sync: { key: sync.key, setSeries: false }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(high, 1) * 1.06] } },
      axes: axes(state.axis, showBytes),
      series: [{ label: state.axis === "at" ? "time" : "event", value: (u, v) => axisWords(state.axis)(v) }, ...series.map(s => ({
        label: s.label, stroke: () => css(s.colour), width: 1.5, dash: s.dash, points: { show: false }, value: (u, v) => showBytes(v),
      }))],
      // The library calls back later, for its own changes and for ours: only a window that is new moves the others.
      hooks: { setScale: [(u, key) => {
        const { min, max } = u.scales.x;
        if (key === "x" && state.window && min != null && (min !== state.window[0] || max !== state.window[1])) setWindow(min, max);
      }] },
      plugins: [spanBands(data, state)],
    }, [x, ...series.map(s => s.y)], box);
    chart.over.addEventListener("wheel", event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const at = chart.posToVal(event.offsetX, "x"), by = event.deltaY < 0 ? 0.8 : 1.25;
      setWindow(at - (at - state.window[0]) * by, at + (state.window[1] - at) * by);
    }, { passive: false });
    charts.push(chart);
  }

  function build() {
    state.window = null;
    charts.splice(0).forEach(chart => chart.destroy());
    host.textContent = "";
    const curves = runs.map(run => curve(run.series, state.axis));
    if (same && runs.length > 1) {
      make("Reserved, all policies", curves[0][0], curves.map(([, y], n) => ({ label: runs[n].label, y: y("reserved"), colour: "--c" + data.runs.indexOf(runs[n]) % 7 })), 300);
    }
    runs.forEach((run, n) => {
      const [x, y] = curves[n];
      make(run.label, x, QUANTITIES.map(name => ({ label: name, y: y(name), colour: LOOK[name][0], dash: LOOK[name][1] })), 220);
    });
    state.full = full();
    state.window = state.full;
    setWindow(...state.full);
  }

  const moves = {
    in: (a, b) => [a + (b - a) / 4, b - (b - a) / 4], out: (a, b) => [a - (b - a) / 2, b + (b - a) / 2],
    left: (a, b) => [a - (b - a) / 4, b - (b - a) / 4], right: (a, b) => [a + (b - a) / 4, b + (b - a) / 4], reset: () => state.full,
  };
  const move = name => setWindow(...moves[name](...state.window));
  document.querySelectorAll("[data-zoom]").forEach(button => button.addEventListener("click", () => move(button.dataset.zoom)));
  host.addEventListener("keydown", event => {
    const name = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "reset" }[event.key];
    if (name && !event.ctrlKey && !event.metaKey) { event.preventDefault(); move(name); }
  });
  host.addEventListener("dblclick", () => move("reset"));
  $("axis").addEventListener("change", () => { state.axis = $("axis").value; build(); });
  build();
  window.poolsimWindow = () => state.window;
}

function drawCalls(data) {
  const host = $("calls-chart");
  if (!host) return;
  const runs = data.runs.map((run, n) => ({ ...run, n })).filter(run => run.calls);
  const names = new Set();
  for (const run of runs) {
    run.calls.last_event = sums(run.calls.last_event);
    for (const name of Object.keys(run.calls.by_call)) { names.add(name); run.calls.by_call[name] = sums(run.calls.by_call[name]); }
  }
  $("call").append(new Option("all calls", ""), ...[...names].map(name => new Option(name, name)));
  let chart;
  function build() {
    chart?.destroy();
    const chosen = $("call").value;
    const values = run => {
      const lists = Object.entries(run.calls.by_call).filter(([name]) => !chosen || name === chosen).map(([, list]) => list);
      return run.calls.last_event.map((_, i) => lists.reduce((sum, list) => sum + list[i], 0));
    };
    const joined = uPlot.join(runs.map(run => [run.calls.last_event, values(run)]));
    chart = new uPlot({
      width: host.clientWidth, height: 260, pxAlign: 0,
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(high, 1) * 1.06] } },
      axes: axes("event", showCount),
      series: [{ label: "event", value: (u, v) => showCount(v) }, ...runs.map(run => ({ label: run.label, stroke: () => css("--c" + run.n % 7), width: 1.5, spanGaps: true, points: { show: false }, value: (u, v) => showCount(v) }))],
    }, joined, host);
  }
  $("call").addEventListener("change", build);
  build();
  charts.push({ redraw: () => chart.redraw(), setSize: size => chart.setSize({ ...size, height: 260 }), root: host, setScale() {} });
}

function drawLatency(data) {
  const host = $("latency-chart");
  if (!host) return;
  const runs = data.runs.map((run, n) => ({ ...run, n })).filter(run => run.latency);
  const names = new Set(runs.flatMap(run => Object.keys(run.latency)));
  $("latency-call").append(...[...names].map(name => new Option(name, name)));
  let chart;
  function build() {
    chart?.destroy();
    const chosen = $("latency-call").value;
    const shown = runs.filter(run => run.latency[chosen]);
    // A step up at each time; from 0 just before the shortest.
    const tables = shown.map(run => {
      const { times, shares } = run.latency[chosen];
      return [[Math.max(times[0], 1) * 0.97, ...times.map(ns => Math.max(ns, 1))], [0, ...shares]];
    });
    const ends = tables.flatMap(([times]) => [times[0], times.at(-1)]);
    // Room on both sides, so that a single price is seen as the step that it is.
    const snap = (n, up) => {
      const size = 10 ** Math.floor(Math.log10(n)), steps = [1, 2, 5, 10].map(step => step * size);
      return up ? steps.find(step => step >= n) : steps.findLast(step => step <= n);
    };
    const range = [snap(Math.min(...ends) / 1.2, false), snap(Math.max(...ends) * 1.2, true)];
    for (const table of tables) { table[0].push(range[1]); table[1].push(100); }
    const [x, y] = axes("at", share => share + " %");
    const roomy = host.clientWidth > 70 * (3 * Math.log10(range[1] / range[0]) + 2);
    const digit = n => n / 10 ** Math.floor(Math.log10(n) + 1e-9);
    x.values = (u, ticks) => ticks.map(t => { const d = Math.round(digit(t)); return d === 1 || roomy && (d === 2 || d === 5) ? showNanos(t).replace(/\.00 /, " ") : null; });
    x.filter = (u, ticks) => ticks;
    chart = new uPlot({
      width: host.clientWidth, height: 260, pxAlign: 0,
      scales: { x: { time: false, distr: 3, range }, y: { range: [0, 104] } },
      axes: [x, y],
      series: [{ label: "time", value: (u, v) => showNanos(v) }, ...shown.map(run => {
        const modelled = run.latency[chosen].source === "modelled";
        return { label: run.label + (modelled ? " (modelled)" : ""), stroke: () => css("--c" + run.n % 7), width: 1.5, dash: modelled ? [6, 3] : [], spanGaps: true, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), value: (u, v) => v == null ? "–" : v.toFixed(1) + " %" };
      })],
    }, uPlot.join(tables), host);
  }
  $("latency-call").addEventListener("change", build);
  build();
  charts.push({ redraw: () => chart.redraw(), setSize: size => chart.setSize({ ...size, height: 260 }), root: host, setScale() {} });
}

repaint.push(() => charts.forEach(chart => chart.redraw()));
addEventListener("resize", () => {
  charts.forEach(chart => {
    const width = (chart.root.classList.contains("uplot") ? chart.root.parentElement : chart.root).clientWidth;
    if (chart.height ? chart.width !== width : true) chart.setSize({ width, height: chart.height });
  });
});
