// The list of groups: color, editable name, sample thumbnails, and a link to the group on the grid.

import { fetchJson, runAsync, showToast } from "./api.js";
import { plural } from "./segment_card.js";
import { picture } from "./thumbnails.js";

// Colors that differ on light and on dark backgrounds; the thirteenth group has the first one again.
const COLORS = [
  "#e08a2e", "#3485c9", "#4aa564", "#b3559a", "#d05545", "#7d6bc4",
  "#2aa5a0", "#b59a1f", "#d9749f", "#6d8f3a", "#8a6a4f", "#7f8c99",
];

export const groupColor = group => COLORS[group % COLORS.length];
export const groupTitle = group => group.name || `Group ${group.number + 1}`;

// vector: appearance or motion. onPoint: called with the number of the group under the pointer, or null.
export async function showGroups(list, vector, onPoint) {
  const groups = await fetchJson(`groups/${vector}`);
  list.replaceChildren(...groups.map(group => entry(group, vector, onPoint)));
}

function entry(group, vector, onPoint) {
  const item = document.createElement("li");
  item.style.setProperty("--group", groupColor(group.number));

  const name = document.createElement("input");
  Object.assign(name, { value: group.name, placeholder: groupTitle({ ...group, name: "" }), maxLength: 80, spellcheck: false });
  name.setAttribute("aria-label", `Name of group ${group.number + 1}`);
  name.addEventListener("change", () => runAsync(() => rename(group, vector, name)));
  name.addEventListener("keydown", event => {
    if (event.key === "Enter") name.blur();
    if (event.key === "Escape") {
      name.value = group.name;
      name.blur();
    }
    event.stopPropagation();
  });

  const link = document.createElement("a");
  link.className = "samples";
  link.href = `#/group/${vector}:${group.number}`;
  link.setAttribute("aria-label", `Show ${groupTitle(group)} (${plural(group.count, "segment")}) on the grid`);
  link.append(...group.sample_ids.map(picture));
  const count = document.createElement("span");
  count.className = "soft";
  count.textContent = group.count.toLocaleString("en");

  const head = document.createElement("div");
  head.className = "head";
  head.append(name, count);
  item.append(head, link);
  for (const type of ["pointerenter", "focusin"]) item.addEventListener(type, () => onPoint(group.number));
  for (const type of ["pointerleave", "focusout"]) item.addEventListener(type, () => onPoint(null));
  return item;
}

async function rename(group, vector, input) {
  const name = input.value.trim();
  try {
    await fetchJson(`groups/${vector}/${group.number}`, { method: "PUT", body: name });
    group.name = input.value = name;
    showToast(name ? `Group named “${name}”` : "Name removed");
  } catch (error) {
    input.value = group.name;
    throw error;
  }
}
