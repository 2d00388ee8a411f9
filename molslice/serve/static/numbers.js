// Numbers as text.

// Format a number with four digits; null is an infinite bound.
export function rounded(value) {
  return value === null ? "unlimited" : String(Number(value.toPrecision(4)));
}

export function withUnit(value, unit) {
  return unit ? `${rounded(value)} ${unit}` : rounded(value);
}

// Return the text of a number that a user typed, for `Number`: with a decimal comma, or the minus sign of texts.
export function typedNumber(text) {
  return text.trim().replace(",", ".").replace("\u2212", "-");
}

// Format a probability with three digits; none but 0 and 1 is shown as 0 or 1.
export function probabilityText(value) {
  if (value === 0 || value === 1) return String(value);
  if (value < 0.001) return "<0.001";
  if (value > 0.999) return ">0.999";
  return value < 0.1 ? String(Number(value.toPrecision(3))) : value.toFixed(3);
}

// Format a prediction and the ends of its interval without digits that the interval makes meaningless, as
// molslice/uncertainty/rounding.py. An infinite end is null.
export function roundedInterval(value, lower, upper) {
  const sides = [lower === null ? 0 : value - lower, upper === null ? 0 : upper - value].filter((side) => side > 0);
  const decimals = sides.length ? 1 - Math.floor(Math.log10(Math.min(...sides))) : null;
  return [value, lower, upper].map((number) => withDecimals(number, decimals));
}

function withDecimals(number, decimals) {
  if (number === null || decimals === null) return rounded(number);
  const size = Math.abs(number);
  const step = 10 ** -decimals;
  const whole = Math.round(number / step) + 0; // not -0
  if (whole && (size < 1e-4 || size >= 1e6)) {
    return number.toExponential(Math.max(decimals + Math.floor(Math.log10(size)), 0));
  }
  return (whole * step).toFixed(Math.max(decimals, 0));
}
