//! Checks whether the layers of a stack fit on one another, and suggests the missing layer if they do not.

use super::layers::{self, LayerInterface, PlannedLayer};
use crate::words::nearest;

pub(super) fn unknown(text: &str) -> String {
    let forms = PlannedLayer::forms();
    let ends = |form: &&&str| form.rsplit_once(" > ").is_some_and(|(_, last)| last == text);
    let follows: Vec<String> = forms.iter().filter(ends).map(|form| format!("> {form}")).collect();
    let more = match (follows.is_empty(), nearest(text, forms.iter().copied())) {
        _ if text.contains('>') => " (a > between two layers has a blank on either side)".to_owned(),
        _ if text.contains(',') => {
            " (settings and neighbours, which follow a comma in reports, have keys of their own in a plan)"
                .into()
        }
        (false, _) => format!(" (write {})", follows.join(" or ")),
        (true, Some(near)) => format!(" (did you mean {near}?)"),
        (true, None) => String::new(),
    };
    format!(
        "{text:?} is no layer{more}; accepted: {}; a path with blanks stands in double quotes, one of a single name is ./NAME",
        forms.join(", ")
    )
}

/// Suggests stacks in which a layer, written as `text`, is based on the directory or device `path`. Alternatives are joined by "or".
pub(super) fn suggest(layer: &PlannedLayer, path: &str, text: &str) -> String {
    let accepted = layer.kind().stands_on();
    if accepted == [LayerInterface::Nothing] {
        return format!("{text}, which stands at the bottom");
    }
    let on_file = accepted.contains(&LayerInterface::RawFile).then(|| format!("{path} > raw file > {text}"));
    let on_loop = on_file.is_none().then(|| format!("{path} > raw file > loop > {text}"));
    let on_device = accepted.contains(&LayerInterface::Block).then(|| format!("device {path} > {text}"));
    let on_image = accepted.contains(&LayerInterface::Image).then(|| format!("image {path} > {text}"));
    let all: Vec<String> = [on_device, on_image, on_file, on_loop].into_iter().flatten().collect();
    all.join(" or ")
}

/// Rejects a layer that cannot be built on the layer below it. The error suggests a layer to put between them.
pub(super) fn fit(layer: &PlannedLayer, below: Option<&PlannedLayer>) -> Result<(), String> {
    let (key, accepted) = (layer.kind().key(), layer.kind().stands_on());
    let offered = below.map_or(LayerInterface::Nothing, |below| below.kind().offers());
    if accepted.contains(&offered) {
        return Ok(());
    }
    let needed = needed(accepted);
    let Some(below) = below.map(|below| below.kind().key()) else {
        let at_bottom = layer.kind().needed_at_bottom();
        let needs = at_bottom.map_or_else(|| format!("{needed} below it"), str::to_owned);
        let over_file = (accepted == [LayerInterface::Block]).then(|| {
            let line = layer.kind().segments(None).join(" > ");
            format!("; over a file: stack = \"/srv > raw file > loop direct_io=true > {line}\"")
        });
        return Err(format!("{key} needs {needs}{}", over_file.unwrap_or_default()));
    };
    if accepted == [LayerInterface::Nothing] {
        return Err(format!("{key} stands at the bottom, which {below} excludes; give one of them"));
    }
    if offered == LayerInterface::Found {
        return Err(format!(
            "{below} is measured where it is, so {key} cannot stand on it; give file, device or lvm in its place"
        ));
    }
    if let Some(unfit) = layer.kind().unfit(&format!("{below} is {}", offered.words())) {
        return Err(unfit);
    }
    let between = between(offered, accepted)
        .map(|(keys, line)| format!("; put {keys} between (in a line: {line})"))
        .unwrap_or_default();
    Err(format!("{key} needs {needed}, and {below} is {}{between}", offered.words()))
}

/// Lists accepted interfaces for an error message: `a block device, a raw file or a disk image`.
fn needed(accepted: &[LayerInterface]) -> String {
    let words: Vec<&str> = accepted.iter().map(|interface| interface.words()).collect();
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Finds one layer, or two, that turn the offered interface into an accepted one, as keys of a plan and as text of a line; `None` if there
/// are no such layers.
fn between(offered: LayerInterface, accepted: &[LayerInterface]) -> Option<(String, String)> {
    let proposals = layers::proposals();
    let on = |offered: LayerInterface| {
        proposals.iter().filter(move |(.., layer)| layer.kind().stands_on().contains(&offered))
    };
    let fits = |layer: &PlannedLayer| accepted.contains(&layer.kind().offers());
    if let Some((key, line, _)) = on(offered).find(|(.., layer)| fits(layer)) {
        return Some(((*key).into(), (*line).into()));
    }
    on(offered).find_map(|(lower, lower_line, layer)| {
        let (upper, upper_line, _) = on(layer.kind().offers()).find(|(.., layer)| fits(layer))?;
        Some((format!("{lower} and {upper}"), format!("{lower_line} > {upper_line}")))
    })
}

/// Returns the layers that fit on an interface and can run a workload, each as a plan key and as text in a stack's line.
pub(super) fn completing(offered: LayerInterface) -> Vec<(&'static str, &'static str)> {
    let fits = |layer: &PlannedLayer| {
        // `file = {}` names no directory: it creates the file on the target's own filesystem.
        layer.kind().stands_on().contains(&offered) && layer.kind().offers().is_measurable()
    };
    let all = layers::proposals().into_iter().filter(|(.., layer)| fits(layer));
    let has_disk = offered != LayerInterface::GuestDirectory;
    all.map(|(key, line, _)| (key, if has_disk { line } else { "guest" })).collect()
}
