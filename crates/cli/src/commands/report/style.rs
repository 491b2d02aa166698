//! The look of the report: on narrow screens, in light and dark, and on paper.

/// Colours of one scheme, as RRGGBB.
struct Palette {
    ground: &'static str,
    text: &'static str,
    soft: &'static str,
    link: &'static str,
    line: &'static str,
    stored: &'static str,
    saved: &'static str,
    free: &'static str,
}

const LIGHT: Palette = Palette {
    ground: "ffffff",
    text: "1a1a1a",
    soft: "555555",
    link: "00539f",
    line: "c4c4c4",
    stored: "0072b2",
    saved: "00845f",
    free: "767676",
};

const DARK: Palette = Palette {
    ground: "14171a",
    text: "e8e8e8",
    soft: "b4b4b4",
    link: "8cc4ff",
    line: "4a4f55",
    stored: "56b4e9",
    saved: "2fc79a",
    free: "9a9a9a",
};

const RULES: &str = "
body{background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:70rem;\
padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.5rem}
a{color:var(--link)}p{max-width:45rem}.soft,caption{color:var(--soft)}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;padding:0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dt{color:var(--soft)}dd{margin:0}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:100%}
caption{padding:.4rem 0;text-align:left}
th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top}
th{font-weight:600}.figure{text-align:right;white-space:nowrap;overflow-wrap:normal}.words{min-width:5rem}
figure{margin:1rem 0}.chart svg{display:block;max-width:40rem;min-width:34rem;width:100%}
.bar{display:block;height:.7rem;min-width:6rem;width:100%}.savings{height:1.6rem}
.stored{fill:var(--stored)}.saved{fill:var(--saved)}.free{fill:var(--free)}.key{height:.8rem;width:.8rem}
.line{fill:none;stroke-width:2}.line.held{stroke:var(--text);stroke-dasharray:7 3}\
.line.stored{stroke:var(--stored)}.line.saved{stroke:var(--saved)}\
.line.free{stroke:var(--free);stroke-dasharray:2 3}.line.forecast{stroke:var(--stored);stroke-dasharray:10 5}
.rule{stroke:var(--line)}.tick{fill:var(--soft);font-size:13px}
.keys .key{height:.6rem;min-width:.8rem;width:auto}
.keys{list-style:none;padding:0}td .keys{margin:0}
@media(max-width:40rem){body{padding:.6rem}th,td{padding:.3rem}}
@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}.wide{overflow:visible}\
thead{display:table-header-group}tr,figure{break-inside:avoid}h2{break-after:avoid}.chart svg{min-width:0}}
";

/// The style sheet.
pub fn sheet() -> String {
    let (light, dark) = (LIGHT.variables(), DARK.variables());
    // Paper is white in either scheme.
    format!(
        "\n:root{{color-scheme:light dark;{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{RULES}"
    )
}

impl Palette {
    fn variables(&self) -> String {
        let Self { ground, text, soft, link, line, stored, saved, free } = self;
        format!(
            "--ground:#{ground};--text:#{text};--soft:#{soft};--link:#{link};--line:#{line};--stored:#{stored};\
             --saved:#{saved};--free:#{free}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn text_and_bars_stand_out_from_the_ground_in_both_schemes() {
        assert!((contrast("000000", "ffffff") - 21.0).abs() < 0.01);
        for palette in [LIGHT, DARK] {
            let Palette { ground, text, soft, link, stored, saved, free, .. } = palette;
            for colour in [text, soft, link, stored, saved, free] {
                assert!(contrast(colour, ground) >= 4.5, "{colour} on {ground}: {}", contrast(colour, ground));
            }
        }
    }

    #[test]
    fn the_style_loads_nothing_and_knows_paper_and_the_dark() {
        let sheet = sheet();
        assert!(!sheet.contains("url(") && !sheet.contains("@import") && !sheet.contains(['<', '&']));
        assert!(sheet.contains("@media print") && sheet.contains("prefers-color-scheme:dark"));
        assert_eq!(sheet.matches('{').count(), sheet.matches('}').count());
    }
}
