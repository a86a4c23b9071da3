//! vdbench's keywords and their abbreviations.

/// Minimum number of letters in an abbreviated keyword.
const SHORTEST: usize = 2;

/// Keywords of `sd=`. All lists are in vdbench's order, because an abbreviation means the first keyword that starts with it.
const STORAGE: [&str; 17] = [
    "host",
    "lun",
    "count",
    "size",
    "threads",
    "hitarea",
    "offset",
    "align",
    "kstat",
    "instance",
    "replay",
    "journal",
    "resetlun",
    "resetbus",
    "openflags",
    "range",
    "streams",
];

/// Keywords of `wd=`.
const WORK: [&str; 18] = [
    "skew",
    "xfersize",
    "readpct",
    "rdpct",
    "writepct",
    "wrpct",
    "range",
    "hotband",
    "seekpct",
    "stride",
    "priority",
    "iorate",
    "rhpct",
    "whpct",
    "host",
    "openflags",
    "threads",
    "streams",
];

/// Keywords of `fsd=`.
const FILE_STORAGE: [&str; 14] = [
    "anchor",
    "shared",
    "width",
    "depth",
    "files",
    "mask",
    "sizes",
    "totalsize",
    "workingsetsize",
    "journal",
    "openflags",
    "distribution",
    "cleanup",
    "count",
];

/// Keywords of `fwd=`.
const FILE_WORK: [&str; 11] = [
    "fileio",
    "fileselect",
    "xfersizes",
    "operations",
    "operation",
    "skew",
    "threads",
    "stopafter",
    "rdpct",
    "openflags",
    "host",
];

/// Keywords of `rd=`.
const RUN: [&str; 31] = [
    "iorate",
    "maxdata",
    "curve",
    "stopcurve",
    "elapsed",
    "interval",
    "warmup",
    "pause",
    "forxfersize",
    "forthreads",
    "forrdpct",
    "forrhpct",
    "forwhpct",
    "forseekpct",
    "forhitarea",
    "forreadpct",
    "xfersize",
    "threads",
    "rdpct",
    "rhpct",
    "whpct",
    "seekpct",
    "hitarea",
    "distribution",
    "startcmd",
    "endcmd",
    "fwdrate",
    "operations",
    "openflags",
    "format",
    "foroperations",
];

/// Synonyms of keywords: kind of definition, synonym, keyword.
const SAME: [(&str, &str, &str); 9] = [
    ("wd", "readpct", "rdpct"),
    ("rd", "forreadpct", "forrdpct"),
    // In a run definition, these override the values of its workloads, like a loop over one value does.
    ("rd", "xfersize", "forxfersize"),
    ("rd", "threads", "forthreads"),
    ("rd", "rdpct", "forrdpct"),
    ("rd", "seekpct", "forseekpct"),
    ("rd", "foroperations", "operations"),
    ("fwd", "operations", "operation"),
    ("", "dataerrors", "data_errors"),
];

/// Returns the full name of a keyword, in lower case; a synonym becomes its usual name. `kind` is the kind of definition that contains the
/// keyword; empty if the keyword starts a line. An unknown keyword is only put in lower case.
pub(super) fn full(kind: &str, written: &str) -> String {
    let written = written.to_lowercase();
    let known: &[&str] = match kind {
        "sd" => &STORAGE,
        "wd" => &WORK,
        "fsd" => &FILE_STORAGE,
        "fwd" => &FILE_WORK,
        "rd" => &RUN,
        _ => &["data_errors", "dataerrors"],
    };
    // Names of definitions are never abbreviated.
    let is_name = ["sd", "wd", "hd", "fsd", "fwd"].contains(&written.as_str());
    let begins = |word: &&&str| word.starts_with(&written) && written.len() >= SHORTEST && !is_name;
    let word = known.iter().find(begins).map_or(written.as_str(), |word| word);
    let same = SAME.iter().find(|(of, other, _)| *of == kind && *other == word);
    same.map_or(word, |(.., usual)| usual).to_owned()
}

#[cfg(test)]
mod tests {
    use super::full;

    #[test]
    fn an_abbreviation_is_the_first_keyword_that_it_begins() {
        for (kind, written, word) in [
            ("sd", "th", "threads"),
            ("sd", "re", "replay"),
            ("sd", "OPEN", "openflags"),
            ("wd", "xf", "xfersize"),
            ("wd", "re", "rdpct"),
            ("wd", "st", "stride"),
            ("wd", "sd", "sd"),
            ("rd", "io", "iorate"),
            ("rd", "el", "elapsed"),
            ("rd", "forx", "forxfersize"),
            ("rd", "xfer", "forxfersize"),
            ("rd", "op", "operations"),
            ("rd", "open", "openflags"),
            ("rd", "sd", "sd"),
            ("rd", "e", "e"),
            ("rd", "elapsedd", "elapsedd"),
            ("", "data", "data_errors"),
            ("rd", "foroperations", "operations"),
            ("fwd", "operations", "operation"),
            ("", "dataerrors", "data_errors"),
            ("", "rd", "rd"),
        ] {
            assert_eq!(full(kind, written), word, "{kind} {written}");
        }
    }
}
