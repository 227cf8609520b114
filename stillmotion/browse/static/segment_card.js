// A segment as a picture that leads to it, with its name and, among what was found, how alike it is.

import { picture, animateOnHover } from "./thumbnails.js";

export function card(segment, alike = null) {
  const link = document.createElement("a");
  link.className = "card";
  link.href = `#/segment/${segment.id}`;
  link.draggable = false;
  const image = picture(segment.id);
  image.loading = "lazy";
  image.addEventListener("load", () => image.classList.toggle("tall", image.naturalWidth < 0.9 * image.naturalHeight));
  animateOnHover(link, image);
  const label = document.createElement("span");
  label.className = "label";
  label.textContent = shortName(segment);
  const frame = document.createElement("span");
  frame.className = "frame";
  frame.append(image, label);
  link.append(frame);
  let spoken = `${segment.path}, ${span(segment)}`;
  if (alike) {
    link.append(bars(segment));
    spoken += `, alike by appearance ${segment.appearance.toFixed(2)}, by motion ${segment.motion.toFixed(2)}`;
  }
  link.setAttribute("aria-label", spoken);
  link.title = alike ? `${segment.path}\nappearance ${segment.appearance.toFixed(2)} · motion ${segment.motion.toFixed(2)}` : segment.path;
  return link;
}

function bars(segment) {
  const both = document.createElement("span");
  both.className = "bars";
  both.setAttribute("aria-hidden", "true");
  for (const aspect of ["appearance", "motion"]) {
    const bar = document.createElement("span");
    bar.className = aspect;
    const filled = document.createElement("i");
    filled.style.width = `${100 * Math.min(1, Math.max(0, segment[aspect]))}%`;
    bar.append(filled);
    both.append(bar);
  }
  return both;
}

export function fileName(segment) {
  return segment.path.slice(segment.path.lastIndexOf("/") + 1);
}

export function folderName(segment) {
  return segment.path.slice(0, Math.max(0, segment.path.lastIndexOf("/")));
}

// A name, and the time where a segment is a part of its video.
function shortName(segment) {
  return isPart(segment) ? `${fileName(segment)} · ${clock(segment.start)}` : fileName(segment);
}

export function isPart(segment) {
  return segment.end - segment.start < segment.duration - 0.25;
}

export function span(segment) {
  return isPart(segment) ? `${clock(segment.start)} to ${clock(segment.end)} of ${clock(segment.duration)}` : clock(segment.duration);
}

export function clock(seconds) {
  const tenths = seconds < 10 && seconds % 1 ? (Math.round(seconds * 10) % 10) : 0;
  const whole = tenths ? Math.floor(seconds) : Math.round(seconds);
  const two = number => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}${tenths ? `.${tenths}` : ""}`;
}
