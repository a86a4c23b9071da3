//! Scripts of a page, and a content security policy that allows only these.

use data_encoding::BASE64;
use maud::{Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

/// The plotting library Plotly, unmodified.
const PLOTLY: &str = include_str!("plotly/plotly-cartesian.min.js");

/// All scripts with their file names, in the order of their dependencies: `draw.js` turns tables into plots, `report.js` decides when to
/// draw.
pub const SCRIPTS: [(&str, &str); 3] =
    [("plotly.js", PLOTLY), ("draw.js", include_str!("draw.js")), ("report.js", include_str!("report.js"))];

fn all() -> impl Iterator<Item = &'static str> {
    SCRIPTS.into_iter().map(|(_, text)| text)
}

/// Renders the script elements for the end of the page, so that the text is shown before the scripts run.
pub(super) fn scripts() -> Markup {
    html! { @for text in all() { script { (PreEscaped(text)) } } }
}

/// Returns a content security policy under which only these scripts run and nothing is loaded.
pub(super) fn policy() -> String {
    let hashes: Vec<String> =
        all().map(|text| format!("'sha256-{}'", BASE64.encode(&Sha256::digest(text)))).collect();
    format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        hashes.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    #[test]
    fn no_script_ends_its_own_element() {
        for text in all() {
            assert!(!text.to_lowercase().contains("</script") && !text.contains("<!--"));
            assert!(!text.contains('\r'), "a browser would hash other bytes");
        }
    }

    #[test]
    fn the_library_is_the_one_that_its_notes_name() {
        let sum = HEXLOWER.encode(&Sha256::digest(PLOTLY));
        assert!(include_str!("plotly/README.md").contains(&sum), "{sum}");
        assert!(PLOTLY.contains("plotly.js (cartesian - minified) v4.1.1"));
    }
}
