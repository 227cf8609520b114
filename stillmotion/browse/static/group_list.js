// The groups of one aspect: a color, a name that can be given, some of its pictures, and the way to the grid.

import { fetchJson, runAsync, showToast } from "./api.js";
import { color } from "./group_colors.js";
import { picture } from "./thumbnails.js";

export const title = group => group.name || `Group ${group.number + 1}`;

// on: { point(number or null) }, told which group is pointed at.
export async function showGroups(list, aspect, on) {
  const groups = await fetchJson(`groups/${aspect}`);
  list.replaceChildren(...groups.map(group => entry(group, aspect, on)));
}

function entry(group, aspect, on) {
  const item = document.createElement("li");
  item.style.setProperty("--own", color(group.number));

  const name = document.createElement("input");
  Object.assign(name, { value: group.name, placeholder: title({ ...group, name: "" }), maxLength: 80, spellcheck: false });
  name.setAttribute("aria-label", `Name of group ${group.number + 1}`);
  name.addEventListener("change", () => runAsync(() => rename(group, aspect, name)));
  name.addEventListener("keydown", event => {
    if (event.key === "Enter") name.blur();
    if (event.key === "Escape") {
      name.value = group.name;
      name.blur();
    }
    event.stopPropagation();
  });

  const show = document.createElement("a");
  show.className = "glance";
  show.href = `#/group/${aspect}:${group.number}`;
  show.setAttribute("aria-label", `Show the ${group.count} segments of ${title(group)} on the grid`);
  show.append(...group.sample_ids.map(picture));
  const count = document.createElement("span");
  count.className = "soft";
  count.textContent = group.count.toLocaleString("en");

  const head = document.createElement("div");
  head.className = "head";
  head.append(name, count);
  item.append(head, show);
  item.addEventListener("pointerenter", () => on.point(group.number));
  item.addEventListener("pointerleave", () => on.point(null));
  item.addEventListener("focusin", () => on.point(group.number));
  item.addEventListener("focusout", () => on.point(null));
  return item;
}

async function rename(group, aspect, name) {
  const wished = name.value.trim();
  try {
    await fetchJson(`groups/${aspect}/${group.number}`, { method: "PUT", body: wished });
    group.name = name.value = wished;
    showToast(wished ? `Named “${wished}”` : "The name is taken away");
  } catch (error) {
    name.value = group.name;
    throw error;
  }
}
