// A video that is dropped on the page or chosen: it is sent to the server on this machine and searched by.

import { fetchJson, runAsync } from "./api.js";

const uploads = new Map(); // key to { key, name, url }
const dropOverlay = () => document.getElementById("drop-overlay");

export function getUpload(key) {
  return uploads.get(key) || { key, name: "A dropped video", url: null };
}

async function send(file, limit) {
  if (file.size > limit) throw new Error(`${file.name} is larger than ${Math.floor(limit / 2 ** 20)} MiB; drop a shorter part of it`);
  show(`Embedding ${file.name} …`, true);
  try {
    const { query } = await fetchJson(`uploads?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
    uploads.set(query, { key: query, name: file.name, url: URL.createObjectURL(file) });
    location.hash = `#/upload/${query}`;
  } finally {
    dropOverlay().hidden = true;
  }
}

function show(text, busy) {
  document.getElementById("drop-overlay-text").textContent = text;
  dropOverlay().classList.toggle("busy", busy);
  dropOverlay().hidden = false;
}

export function start(limit) {
  const input = document.getElementById("file");
  const accept = files => {
    if (dropOverlay().classList.contains("busy") && !dropOverlay().hidden) return;
    if (files.length) runAsync(() => send(files[0], limit));
  };
  document.getElementById("upload").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    accept([...input.files]);
    input.value = "";
  });
  const holdsFiles = event => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
  let depth = 0; // nested elements that the pointer is dragged over
  addEventListener("dragenter", event => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth += 1;
    if (dropOverlay().hidden) show("Drop to search with this video", false);
  });
  addEventListener("dragover", event => { if (holdsFiles(event)) event.preventDefault(); });
  addEventListener("dragleave", event => {
    if (!holdsFiles(event)) return;
    depth -= 1;
    if (depth <= 0 && !dropOverlay().classList.contains("busy")) dropOverlay().hidden = true;
  });
  addEventListener("drop", event => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth = 0;
    if (!dropOverlay().classList.contains("busy")) dropOverlay().hidden = true;
    accept([...event.dataTransfer.files]);
  });
}
