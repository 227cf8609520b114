// A video that is dropped on the page, or chosen: it is sent to this machine's own server and searched by.

import { ask, attempt } from "./ask.js";

const dropped = new Map(); // key to { key, name, url }
const veil = () => document.getElementById("veil");

export function recall(key) {
  return dropped.get(key) || { key, name: "A dropped video", url: null };
}

async function send(file, limit) {
  if (file.size > limit) throw new Error(`${file.name} is larger than ${Math.floor(limit / 2 ** 20)} MiB; drop a shorter piece of it`);
  show(`Looking at ${file.name} …`, true);
  try {
    const { query } = await ask("queries", { method: "POST", body: file });
    dropped.set(query, { key: query, name: file.name, url: URL.createObjectURL(file) });
    location.hash = `#/query/${query}`;
  } finally {
    veil().hidden = true;
  }
}

function show(words, busy) {
  document.getElementById("veil-words").textContent = words;
  veil().classList.toggle("busy", busy);
  veil().hidden = false;
}

export function start(limit) {
  const input = document.getElementById("file");
  const take = files => {
    if (veil().classList.contains("busy") && !veil().hidden) return;
    if (files.length) attempt(() => send(files[0], limit));
  };
  document.getElementById("pick").addEventListener("click", () => input.click());
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
    if (veil().hidden) show("Let go to search by this video", false);
  });
  addEventListener("dragover", event => { if (holdsFiles(event)) event.preventDefault(); });
  addEventListener("dragleave", event => {
    if (!holdsFiles(event)) return;
    within -= 1;
    if (within <= 0 && !veil().classList.contains("busy")) veil().hidden = true;
  });
  addEventListener("drop", event => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    within = 0;
    if (!veil().classList.contains("busy")) veil().hidden = true;
    take([...event.dataTransfer.files]);
  });
}
