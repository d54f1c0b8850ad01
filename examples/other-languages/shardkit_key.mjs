// Where shardkit stores an item, for services in JavaScript: node 18 and newer, and nothing else.
// A value is as DynamoDB has it: ["S", "A17"], ["N", "1.50"] or ["B", bytes]; a list of values is hashed as a tuple.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/** A number in full, without an exponent or trailing zeros: equal numbers have equal texts. */
export function numberText(text) {
  const [, sign, whole, part = "", exponent = "0"] = /^(-?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/.exec(text);
  const shift = Number(exponent) - part.length; // of the digits, to the left
  const digits = (whole + part + "0".repeat(Math.max(shift, 0))).padStart(1 - shift, "0");
  const point = digits.length + Math.min(shift, 0);
  const full = `${digits.slice(0, point)}.${digits.slice(point)}`.replace(/^0+(?=\d)/, "").replace(/\.?0*$/, "");
  return full === "0" ? full : sign + full;
}

const bytesOf = ([letter, content]) => Buffer.from(letter === "N" ? numberText(content) : content);

const member = (value) => {
  const bytes = bytesOf(value), length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([Buffer.from(value[0]), length, bytes]);
};

/** The hash of a value or of a list of values: a BigInt from 0 to 2**64 - 1. */
export function stableHash(value) {
  const bytes = Array.isArray(value[0]) ? Buffer.concat(value.map(member)) : bytesOf(value);
  return createHash("sha256").update(bytes).digest().readBigUInt64BE();
}

/** The suffix that CalculatedSuffix gives to an item whose attribute `by` (or list of attributes) has this value. */
export const calculatedSuffix = (value, shards, { separator = ".", first = 1 } = {}) =>
  `${separator}${BigInt(first) + (stableHash(value) % BigInt(shards))}`;

const scaled = (text) => {
  const [whole, part = ""] = numberText(text).split(".");
  return BigInt(whole + part.padEnd(1000, "0"));
};

const notAfter = (a, b) =>
  a[0] === "N" ? scaled(a[1]) <= scaled(b[1]) : Buffer.compare(bytesOf(a), bytesOf(b)) <= 0;

/** The suffix that RangeSuffix gives to an item with this sort key: named after the highest boundary up to it. */
export function rangeSuffix(value, boundaries, { separator = "." } = {}) {
  const below = boundaries.filter((boundary) => notAfter(boundary, value)).at(-1);
  return `${separator}x${below ? bytesOf(below).toString("hex") : ""}`;
}

// Run as a program, it answers the lines of tests/functional/test_other_languages.py.
if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const read = (field) => [field[0], Buffer.from(field.slice(2), "base64")].map((part, i) =>
    i && field[0] !== "B" ? part.toString() : part);
  for (const line of readFileSync(0, "utf8").trim().split("\n")) {
    const [asked, value, separator, ...others] = line.split(" ");
    const given = value[0] === "T" ? value.split(",").slice(1).map(read) : read(value);
    if (asked === "hash") console.log(String(stableHash(given)));
    else if (asked === "ranges") console.log(rangeSuffix(given, others.map(read), { separator }));
    else console.log(calculatedSuffix(given, others[1], { separator, first: others[0] }));
  }
}
