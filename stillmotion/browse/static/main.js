// Start of the page: views by URL hash, keyboard shortcuts, and facts about the index.

import { fetchJson, runAsync } from "./api.js";
import { isArrow, focusNeighbor } from "./arrow_keys.js";
import { groupTitle } from "./group_list.js";
import { GridView } from "./grid_view.js";
import { MapView } from "./map_view.js";
import { plural } from "./segment_card.js";
import { SegmentView } from "./segment_view.js";
import * as theme from "./theme.js";
import * as thumbnails from "./thumbnails.js";
import * as upload from "./upload.js";

const NAMES = ["grid", "segment", "map"];
const filter = document.getElementById("filter");
const help = document.getElementById("about");
const views = { grid: new GridView(), segment: new SegmentView(), map: new MapView() };
let currentView = null;
let lastCard = null;
let hasHistory = false; // Escape goes back to the previous view of this page

// URL hashes: #/ the grid, #/group/motion:2 a group on it, #/segment/<id>, #/upload/<key>, #/map.
async function route() {
  const [view = "", rest = ""] = location.hash.replace(/^#\//, "").split("/");
  const key = decodeURIComponent(rest);
  if (view === "segment" && key) {
    open("segment");
    await views.segment.showSegment(key);
  } else if (view === "upload" && key) {
    open("segment");
    await views.segment.showUpload(upload.getUpload(key));
  } else if (view === "map") {
    open("map");
    await views.map.enter();
  } else {
    open("grid");
    await showGrid(view === "group" ? key : "");
  }
}

function open(name) {
  if (currentView === name) return;
  if (currentView) views[currentView].leave?.();
  for (const other of NAMES) document.getElementById(`${other}-view`).hidden = other !== name;
  for (const link of document.querySelectorAll(".views a")) {
    link.toggleAttribute("aria-current", link.dataset.view === name);
  }
  currentView = name;
  document.documentElement.dataset.view = name;
  if (name === "map") scrollTo(0, 0);
  if (name === "grid") views.grid.enter();
}

async function showGrid(group) {
  const chip = document.getElementById("clear-group");
  chip.hidden = !group;
  views.grid.show({ name: filter.value.trim(), group });
  if (lastCard) document.querySelector(`#grid a[href="${lastCard}"]`)?.focus({ preventScroll: true });
  if (!group) return;
  const [vector, number] = group.split(":");
  const groups = await fetchJson(`groups/${vector}`);
  const current = groups.find(other => String(other.number) === number);
  const title = current ? groupTitle(current) : "A group";
  chip.textContent = `${title}, by ${vector} ×`;
  chip.setAttribute("aria-label", `${title}: show all segments again`);
}

function isTyping(event) {
  return event.target.closest?.("input:not([type=range]):not([type=radio]), textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey;
}

const KEYS = {
  "/": () => filter.focus(),
  "?": () => help.showModal(),
  g: () => { location.hash = "#/"; },
  m: () => { location.hash = "#/map"; },
  p: thumbnails.toggle,
  t: theme.toggle,
  "[": () => currentView === "segment" && views.segment.changeWeight(-10),
  "]": () => currentView === "segment" && views.segment.changeWeight(10),
  Escape: goBack,
};

function goBack() {
  if (currentView !== "grid") history.length > 1 && hasHistory ? history.back() : (location.hash = "#/");
  else if (filter.value) clearFilter();
  else if (location.hash.startsWith("#/group")) location.hash = "#/";
}

function clearFilter() {
  filter.value = "";
  filter.dispatchEvent(new Event("input"));
}

document.addEventListener("keydown", event => {
  if (isTyping(event) || event.target instanceof HTMLCanvasElement && isArrow(event)) return;
  if (event.target.matches?.("input[type=range], input[type=radio]") && isArrow(event)) return;
  if (isArrow(event) && currentView !== "map") focusNeighbor(event, document.getElementById(`${currentView}-view`));
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

let filterTimer;
filter.addEventListener("input", () => {
  clearTimeout(filterTimer);
  filterTimer = setTimeout(() => {
    if (currentView !== "grid") location.hash = "#/";
    else runAsync(route);
  }, 120);
});
filter.addEventListener("keydown", event => {
  if (event.key === "Escape" && filter.value) clearFilter();
  else if (event.key === "Escape" || event.key === "Enter" || event.key === "ArrowDown") {
    filter.blur();
    if (event.key !== "Escape") document.querySelector("#grid a.card")?.focus({ preventScroll: true });
  } else return;
  event.preventDefault();
});

document.addEventListener("click", event => {
  const card = event.target.closest?.("#grid a.card");
  if (card) lastCard = card.getAttribute("href");
});
for (const id of ["help", "failed"]) document.getElementById(id).addEventListener("click", () => help.showModal());
help.addEventListener("click", event => { if (event.target === help) help.close(); });
addEventListener("hashchange", () => {
  hasHistory = true;
  runAsync(route);
});

theme.start();
thumbnails.start();
runAsync(route);
runAsync(async () => {
  const about = await fetchJson("about");
  upload.start(about.max_upload_bytes);
  const folder = about.folder.replace(/\/$/, "").split("/").pop();
  document.title = `${folder} – stillmotion`;
  const facts = [`${plural(about.segments, "segment")} of ${plural(about.videos, "video")} in ${about.folder}. Encoder: ${about.encoder}.`];
  const reasons = Object.values(about.failed);
  if (reasons.length) {
    const failed = document.getElementById("failed");
    failed.textContent = `${plural(reasons.length, "file")} could not be read`;
    failed.hidden = false;
    facts.push(`${failed.textContent}:`, ...reasons.slice(0, 20));
  }
  document.getElementById("facts").replaceChildren(...facts.map(text => {
    const line = document.createElement("p");
    line.textContent = text;
    return line;
  }));
});
