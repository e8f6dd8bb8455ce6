// How steps are named: `draft@2` is the second visit to `draft`, `check#7` an item of a map.

/** The address of the newest visit to a node: `draft@2`. */
export const addressOf = (node) => (node.visits > 1 && !node.node.includes("#") ? `${node.node}@${node.visits}` : node.node);

/** An address without the number of a first visit. */
export const short = (address) => address.replace(/@1(?=[/#]|$)/g, "");

/** Of the paths that are shown the one that is, or has inside it, what an address names. */
export function shownOf(address, shown) {
  const parts = plain(address).split("/");
  while (parts.length && !shown.has(parts.join("/"))) parts.pop();
  return parts.join("/") || plain(address);
}

/** A path without visits and items. */
export const plain = (address) => address.split("/").map((part) => part.replace(/[@#].*$/, "")).join("/");
