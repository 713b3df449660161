// What may be written at a place in a policy file. Pure: text, place and the table of /policy/schema in, words out.

const keyBefore = /([\w.]+)\s*:\s*$/;

/** The keys of the flow mappings and lists that are open at the end of a line. */
function openKeys(line) {
  const stack = [];
  for (let at = 0; at < line.length; at++) {
    if (line[at] === "{" || line[at] === "[") stack.push(keyBefore.exec(line.slice(0, at))?.[1] ?? "");
    if (line[at] === "}" || line[at] === "]") stack.pop();
  }
  return stack;
}

const keyColumn = (line) => /^[\s-]*/.exec(line)[0].length;
const keyOf = (line) => /^[\s-]*([\w.]+)\s*:/.exec(line)?.[1];

/** The keys that lead to the mapping in which the last of these lines is. */
function pathTo(lines) {
  const line = lines.at(-1);
  const path = [];
  let column = keyColumn(line);
  for (let at = lines.length - 2; at >= 0 && column > 0; at--) {
    if (!lines[at].trim() || /^\s*#/.test(lines[at])) continue;
    const other = keyColumn(lines[at]);
    // A list may stand at the column of its key.
    const owns = other < column && keyOf(lines[at]);
    if (!owns) continue;
    path.unshift(keyOf(lines[at]));
    column = other;
  }
  return path;
}

function fieldsAt(table, path) {
  let objects = ["PolicyFile"];
  for (const key of path) objects = [...new Set(objects.flatMap((name) => table[name]?.[key]?.objects ?? []))];
  // Kinds of rules share names of fields; what each allows there counts.
  const merged = {};
  for (const [name, field] of objects.flatMap((kind) => Object.entries(table[kind] ?? {}))) {
    const known = merged[name];
    const both = (part) => [...new Set([...(known?.[part] ?? []), ...field[part]])];
    merged[name] = { about: known?.about || field.about, words: both("words"), objects: both("objects") };
  }
  return merged;
}

/** Return the words that fit, what was typed of them, and what each is about. */
export function complete(table, text, place) {
  const lines = text.slice(0, place).split("\n");
  const line = lines.at(-1);
  if (/^\s*#/.test(line)) return { typed: "", words: [] };
  const open = openKeys(line);
  const own = keyOf(line);
  // In a flow mapping, the keys of this line before its brace lead there too.
  const path = [...pathTo(lines), ...open.filter(Boolean)];
  const tail = open.length ? line.slice(Math.max(line.lastIndexOf("{"), line.lastIndexOf("["), line.lastIndexOf(",")) + 1) : line;
  const value = /^[\s-]*([\w.]+)\s*:\s+(\w*)$/.exec(tail);
  const list = open.length && line[Math.max(line.lastIndexOf("{"), line.lastIndexOf("["))] === "[" && open.at(-1);
  if (value || list) {
    const [key, typed] = value ? [value[1], value[2]] : [open.at(-1), /(\w*)$/.exec(tail)[1]];
    const field = fieldsAt(table, value ? path : path.slice(0, -1))[key];
    const words = (field?.words ?? []).filter((word) => word.startsWith(typed) && word !== typed);
    return { typed, words: words.map((word) => ({ word, insert: word, about: "" })) };
  }
  const typed = /^[\s-]*(\w*)$/.exec(tail)?.[1];
  if (typed === undefined || (own && !open.length)) return { typed: "", words: [] };
  const words = Object.entries(fieldsAt(table, path)).filter(([name]) => name.startsWith(typed) && name !== typed);
  return { typed, words: words.map(([word, field]) => ({ word, insert: `${word}: `, about: field.about })) };
}
