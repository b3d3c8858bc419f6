// The address space at a moment: ranges one after the other in address order, wrapped over rows of equal numbers of bytes.
function drawHeap(data) {
  const canvas = $("heap-map");
  if (!canvas) return;
  const STATE = ["free", "in use", "freed, still used by other streams"];
  const runs = data.runs.map((run, n) => ({ label: run.label, frames: run.frames, n })).filter(run => run.frames.length);
  if (!runs.length) return;
  const [runSelect, slider] = [$("heap-run"), $("heap-frame")];
  runs.forEach((run, n) => runSelect.append(new Option(run.label, n)));
  const FIELDS = 7, ROWS = 28, ROW = 14;
  let blocks = [], selected = -1, perRow = 1;

  const run = () => runs[Number(runSelect.value)];
  const frame = () => run().frames[Number(slider.value)];

  // The blocks of a frame with their places; the numbers are size, requested, state, stack, born, died, count.
  function unfold(of) {
    const list = [];
    let place = 0;
    of.ranges.forEach(range => {
      let address = BigInt(range.a), live = 0, free = 0;
      const first = list.length;
      for (let i = 0; i < range.b.length; i += FIELDS) {
        const [size, requested, state, stack, born, died, count] = range.b.slice(i, i + FIELDS);
        list.push({ size, requested, state, stack, born, died, count, place, address, range, first: i === 0 });
        place += size; address += BigInt(size);
        if (state) live += count; else free += size;
      }
      for (let i = first; i < list.length; i++) { list[i].live = live; list[i].free = free; list[i].from = first; list[i].to = list.length; }
    });
    return list;
  }

  const reserved = of => of.ranges.reduce((sum, range) => sum + range.s, 0);

  function show() {
    const now = frame();
    blocks = unfold(now);
    selected = -1;
    const most = Math.max(...run().frames.map(reserved), 1);
    perRow = most / ROWS;
    const bytes = reserved(now);
    const used = blocks.reduce((sum, b) => sum + (b.state ? b.size : 0), 0);
    const why = { peak: ", at the peak of the reservation", refused: ", where a request was refused" }[now.moment] ?? "";
    $("heap-title").textContent = `After event ${showCount(now.event)}, ${showNanos(now.at)} into the trace${why}: ${showBytes(bytes)} reserved in ${showCount(now.ranges.length)} ranges, ${showBytes(used)} in use.`;
    canvas.setAttribute("aria-label", "Map of the address space. " + $("heap-title").textContent + " The arrow keys go from block to block.");
    paint();
  }

  function paint() {
    const width = canvas.clientWidth, ratio = devicePixelRatio;
    canvas.width = width * ratio; canvas.height = (ROWS * ROW + 2) * ratio;
    canvas.style.height = ROWS * ROW + 2 + "px";
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const colours = { used: css("--used"), pending: css("--pending"), stranded: css("--stranded"), idle: css("--idle"), edge: css("--edge"), paper: css("--paper") };
    const stack = selected >= 0 ? blocks[selected].stack : -1;
    const stretch = (block, paintOne) => {
      const end = block.place + block.size;
      const last = Math.min(Math.floor(end / perRow), ROWS - 1);
      for (let row = Math.min(Math.floor(block.place / perRow), ROWS - 1); row <= last; row++) {
        const from = Math.max(block.place, row * perRow), to = row === ROWS - 1 ? end : Math.min(end, (row + 1) * perRow);
        if (to > from) paintOne((from / perRow - row) * width, row * ROW + 1, (to - from) / perRow * width);
      }
    };
    blocks.forEach(block => {
      ctx.fillStyle = block.state === 1 ? colours.used : block.state === 2 ? colours.pending : block.live ? colours.stranded : colours.idle;
      ctx.globalAlpha = stack >= 0 && block.stack !== stack && block.state ? 0.45 : 1;
      stretch(block, (x, y, w) => ctx.fillRect(x, y, Math.max(w - (w > 3 ? 0.6 : 0), 0.4), ROW - 2));
    });
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.edge;
    for (const block of blocks) {
      if (!block.first) continue;
      const row = Math.min(Math.floor(block.place / perRow), ROWS - 1);
      ctx.fillRect((block.place - row * perRow) / perRow * width - 0.75, row * ROW, 1.5, ROW);
    }
    if (selected >= 0) {
      ctx.strokeStyle = colours.edge; ctx.lineWidth = 2;
      stretch(blocks[selected], (x, y, w) => ctx.strokeRect(x + 1, y, Math.max(w - 2, 2), ROW - 2));
    }
  }

  function describe() {
    const box = $("heap-details"), block = blocks[selected];
    box.textContent = "";
    if (!block) return;
    const many = block.count > 1 ? `${showCount(block.count)} small blocks, ` : "";
    box.append(element("p", `${many}${showBytes(block.size)} ${STATE[block.state]} at 0x${block.address.toString(16)}` + (block.state && block.count === 1 ? `, ${showBytes(block.requested)} asked for` : "")));
    const range = block.range;
    box.append(element("p", `In the ${range.e ? "expandable " : ""}range of ${showBytes(range.s)} at ${range.a}, stream ${range.t}, pool ${range.p}: ${showBytes(block.free)} of it free, ${showCount(block.live)} blocks in use.`));
    if (block.born >= 0) box.append(element("p", `Requested at event ${showCount(block.born)}; ` + (block.died >= 0 ? `freed at event ${showCount(block.died)}.` : "held until the end.")));
    if (!block.state) {
      const pins = blocks.slice(block.from, block.to).filter(b => b.state).sort((a, b) => b.size - a.size);
      if (!pins.length) box.append(element("p", "Nothing pins this range: it can be given back."));
      else {
        box.append(element("p", `Pinned by ${showCount(block.live)} blocks in the same range, the largest:`));
        const list = element("ul");
        pins.slice(0, 5).forEach(pin => list.append(element("li", `${showBytes(pin.size)} at 0x${pin.address.toString(16)}` + (data.stacks[pin.stack]?.length ? `: ${data.stacks[pin.stack][0]}` : ""))));
        box.append(list);
      }
    }
    const frames = data.stacks[block.stack];
    if (block.state && frames?.length) {
      const list = element("ol", null, "stack");
      frames.forEach(line => list.append(element("li", line)));
      box.append(list);
    }
  }

  function select(n) { selected = n; paint(); describe(); }

  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - 1) / ROW);
    const at = row * perRow + (event.clientX - box.left) / box.width * perRow;
    let low = 0, high = blocks.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (blocks[middle].place <= at) low = middle; else high = middle - 1; }
    const hit = blocks[low];
    if (hit && at < hit.place + hit.size && low !== selected) select(low);
  });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (!step || !blocks.length) return;
    event.preventDefault();
    select(Math.min(Math.max(selected + step, 0), blocks.length - 1));
  });
  const goTo = moment => {
    const n = run().frames.findIndex(f => f.moment === moment);
    if (n >= 0) { slider.value = n; show(); }
  };
  function choose() {
    const frames = run().frames;
    slider.max = frames.length - 1;
    $("heap-peak").hidden = !frames.some(f => f.moment === "peak");
    $("heap-refused").hidden = !frames.some(f => f.moment === "refused");
    slider.value = Math.max(frames.findIndex(f => f.moment === "peak"), 0);
    show();
  }
  runSelect.addEventListener("change", choose);
  slider.addEventListener("input", show);
  $("heap-peak").addEventListener("click", () => goTo("peak"));
  $("heap-refused").addEventListener("click", () => goTo("refused"));
  addEventListener("resize", paint);
  repaint.push(paint);
  choose();
}
