// Memory at the peak by stack: outermost calls first, each as wide as its bytes. A click zooms, Escape goes back.
function drawIcicles(data) {
  const COLOURS = ["#9ecae9", "#ffbf79", "#88d27a", "#d6a5c9", "#f2cf5b", "#a9b8c6"];
  for (const host of document.querySelectorAll(".icicle")) {
    const root = data.runs[Number(host.dataset.run)].icicle;
    if (!root) { host.remove(); continue; }
    const path = [root];
    // A chain of calls with one way on says nothing: start where it forks.
    const draw = () => {
      host.textContent = "";
      const top = path.at(-1), total = root[1];
      let depth = 0;
      const place = (node, left, width, level) => {
        if (width < 0.003 || level > 30) return;
        depth = Math.max(depth, level);
        const [name, bytes, blocks, inner] = node;
        const button = element("button", name);
        const share = (bytes / total * 100).toFixed(1);
        const words = `${name}: ${showBytes(bytes)} in ${showCount(blocks)} blocks, ${share} % of the peak`;
        button.type = "button"; button.title = words; button.setAttribute("aria-label", words);
        Object.assign(button.style, { left: left * 100 + "%", width: width * 100 + "%", top: level * 22 + "px", background: COLOURS[hash(name) % COLOURS.length] });
        button.addEventListener("click", () => { if (node !== top) path.push(node); else if (path.length > 1) path.pop(); draw(); });
        host.append(button);
        let at = left;
        for (const next of inner) { const wide = width * next[1] / bytes; place(next, at, wide, level + 1); at += wide; }
      };
      place(top, 0, 1, 0);
      host.style.height = (depth + 1) * 22 + "px";
    };
    host.addEventListener("keydown", event => { if (event.key === "Escape" && path.length > 1) { path.pop(); draw(); } });
    while (path[0][3].length === 1 && path[0][3][0][3].length) path[0] = path[0][3][0];
    draw();
  }
}

function hash(text) {
  let sum = 7;
  for (let i = 0; i < text.length; i++) sum = (sum * 31 + text.charCodeAt(i)) >>> 0;
  return sum;
}

payload().then(data => {
  drawCharts(data);
  drawCalls(data);
  drawLatency(data);
  drawHeap(data);
  drawIcicles(data);
  document.documentElement.dataset.ready = "yes";
});
