// A video that is dropped on the page, or chosen: it is sent to this machine's own server and searched by.

import { fetchJson, runAsync } from "./api.js";

const dropped = new Map(); // key to { key, name, url }
const dropOverlay = () => document.getElementById("drop-overlay");

export function getUpload(key) {
  return dropped.get(key) || { key, name: "A dropped video", url: null };
}

async function send(file, limit) {
  if (file.size > limit) throw new Error(`${file.name} is larger than ${Math.floor(limit / 2 ** 20)} MiB; drop a shorter piece of it`);
  show(`Embedding ${file.name} …`, true);
  try {
    const { query } = await fetchJson("uploads", { method: "POST", body: file });
    dropped.set(query, { key: query, name: file.name, url: URL.createObjectURL(file) });
    location.hash = `#/upload/${query}`;
  } finally {
    dropOverlay().hidden = true;
  }
}

function show(words, busy) {
  document.getElementById("drop-overlay-text").textContent = words;
  dropOverlay().classList.toggle("busy", busy);
  dropOverlay().hidden = false;
}

export function start(limit) {
  const input = document.getElementById("file");
  const take = files => {
    if (dropOverlay().classList.contains("busy") && !dropOverlay().hidden) return;
    if (files.length) runAsync(() => send(files[0], limit));
  };
  document.getElementById("upload").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    take([...input.files]);
    input.value = "";
  });
  const holdsFiles = event => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
  let within = 0; // elements of the page that the pointer is dragged over
  addEventListener("dragenter", event => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    within += 1;
    if (dropOverlay().hidden) show("Drop to search with this video", false);
  });
  addEventListener("dragover", event => { if (holdsFiles(event)) event.preventDefault(); });
  addEventListener("dragleave", event => {
    if (!holdsFiles(event)) return;
    within -= 1;
    if (within <= 0 && !dropOverlay().classList.contains("busy")) dropOverlay().hidden = true;
  });
  addEventListener("drop", event => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    within = 0;
    if (!dropOverlay().classList.contains("busy")) dropOverlay().hidden = true;
    take([...event.dataTransfer.files]);
  });
}
