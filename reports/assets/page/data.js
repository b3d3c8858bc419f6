"use strict";
// The payload, and how numbers are put into words.
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const $ = id => document.getElementById(id);

function sums(deltas) {
  const values = new Array(deltas.length);
  let sum = 0;
  for (let i = 0; i < deltas.length; i++) values[i] = sum += deltas[i];
  return values;
}

async function payload() {
  const text = atob($("payload").textContent.trim());
  const bytes = Uint8Array.from(text, c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function showBytes(n) {
  if (n == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return unit ? n.toFixed(2) + " " + units[unit] : n + " B";
}

const showCount = n => n == null ? "–" : Math.round(n).toLocaleString("en");

function showNanos(ns) {
  if (ns == null) return "–";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(ns) >= size) return (ns / size).toFixed(2) + " " + unit;
  }
  return Math.round(ns) + " ns";
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text != null) made.textContent = text;
  if (className) made.className = className;
  return made;
}
