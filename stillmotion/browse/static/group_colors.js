// The colors of groups, which are told apart on light and on dark paper; the thirteenth is the first again.

const COLORS = [
  "#e08a2e", "#3485c9", "#4aa564", "#b3559a", "#d05545", "#7d6bc4",
  "#2aa5a0", "#b59a1f", "#d9749f", "#6d8f3a", "#8a6a4f", "#7f8c99",
];

export const color = group => COLORS[group % COLORS.length];
