// Numbers as text.

// Format a number with four digits; null is an infinite bound.
export function rounded(value) {
  return value === null ? "unlimited" : String(Number(value.toPrecision(4)));
}

export function withUnit(value, unit) {
  return unit ? `${rounded(value)} ${unit}` : rounded(value);
}

export function interval(lower, upper, unit) {
  return `${rounded(lower)} to ${withUnit(upper, unit)}`;
}
