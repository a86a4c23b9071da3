//! Axes: keys with several values in a plan file. An axis expands its table into one table per value.

use std::collections::HashSet;
use std::ops::Range;

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum number of targets, and of workloads, in a plan after expansion.
pub const MOST: usize = 200;

/// Maximum length of an expanded name in bytes.
const LONGEST_NAME: usize = 40;

/// A key that has several values in a plan file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanAxis {
    /// Name of the table that contains the key, as written in the file; empty for an unnamed workload.
    pub of: String,
    /// The dotted key, such as `guest.cache`.
    pub key: String,
    /// The key's values, as written in the file.
    pub values: Vec<String>,
}

/// A combination of axis values that was left out because it cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Name that the target or workload would have had.
    pub name: String,
    /// Reason why the combination cannot be built.
    pub reason: String,
}

/// An error in an axis, and its location in the file.
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

fn wrong<T>(span: Range<usize>, message: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { span, message: message.into() })
}

/// A table of a plan file together with its axes.
pub(super) struct Product<'i> {
    table: DeTable<'i>,
    /// The table's name, which may be a template with placeholders, and its location in the file; `None` if the table has no name.
    name: Option<Spanned<String>>,
    found: Vec<Found<'i>>,
}

struct Found<'i> {
    path: Vec<String>,
    values: Vec<Spanned<DeValue<'i>>>,
}

/// A table in which each axis is reduced to one value.
pub(super) struct Combination<'i> {
    pub(super) table: DeTable<'i>,
    /// Index of the chosen value on each axis, in the order of the axes.
    pub(super) choice: Vec<usize>,
}

impl<'i> Product<'i> {
    /// Finds the axes of a table: every key whose value is a list.
    pub(super) fn new(table: &DeTable<'i>) -> Result<Self, Wrong> {
        let mut found = Vec::new();
        find(table, &mut Vec::new(), &mut found)?;
        if let Some(axis) = found.get(MOST) {
            let span = axis.values.first().map_or(0..0, Spanned::span);
            return wrong(span, format!("{} lists in one table; accepted: up to {MOST}", found.len()));
        }
        let product = found.iter().try_fold(1_usize, |product, axis| product.checked_mul(axis.values.len()));
        if let (Some(axis), true) = (found.last(), product.is_none_or(|product| product > MOST)) {
            let lists: Vec<String> = found.iter().map(|axis| axis.values.len().to_string()).collect();
            let span = axis.values.first().map_or(0..0, Spanned::span);
            return wrong(span, format!("{} combinations; accepted: up to {MOST}", lists.join(" x ")));
        }
        let name = table
            .get("name")
            .and_then(|name| Some(Spanned::new(name.span(), name.get_ref().as_str()?.to_owned())));
        let product = Self { table: table.clone(), name, found };
        product.check_form()?;
        Ok(product)
    }

    /// Returns whether the table has an axis, so that it expands into several tables.
    pub(super) fn has_axes(&self) -> bool {
        !self.found.is_empty()
    }

    pub(super) fn axes(&self) -> Vec<PlanAxis> {
        let of = self.name.as_ref().map_or("", |name| name.get_ref());
        let values = |axis: &Found| axis.values.iter().map(|value| shown(value.get_ref())).collect();
        self.found
            .iter()
            .map(|axis| PlanAxis { of: of.to_owned(), key: axis.path.join("."), values: values(axis) })
            .collect()
    }

    /// Returns all combinations of the axes' values; the last axis varies fastest.
    pub(super) fn combinations(&self) -> Vec<Combination<'i>> {
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for axis in &self.found {
            let longer = |choice: Vec<usize>| {
                (0..axis.values.len()).map(move |value| [choice.as_slice(), &[value]].concat())
            };
            choices = choices.into_iter().flat_map(longer).collect();
        }
        choices
            .into_iter()
            .map(|choice| {
                let mut table = self.table.clone();
                for (axis, value) in self.found.iter().zip(&choice) {
                    set(&mut table, &axis.path, axis.values[*value].clone());
                }
                Combination { table, choice }
            })
            .collect()
    }

    /// Builds the name of a combination. `unnamed` is for a table without a name: the default name, and the keys whose values that name already
    /// contains.
    pub(super) fn name(&self, choice: &[usize], unnamed: Option<(&str, &[&str])>) -> Result<String, Wrong> {
        let chosen = || self.found.iter().zip(choice).map(|(axis, value)| (axis, &axis.values[*value]));
        let (span, name) = match (&self.name, unnamed) {
            (Some(form), _) if form.get_ref().contains('{') => {
                let mut name = form.get_ref().clone();
                for (axis, value) in chosen() {
                    name = name.replace(&axis.placeholder(&self.found), &plain(&shown(value.get_ref())));
                }
                (form.span(), name)
            }
            (Some(name), _) => {
                let words = chosen().map(|(axis, value)| axis.word(value.get_ref()));
                (name.span(), joined(name.get_ref(), words))
            }
            (None, Some((unnamed, told))) => {
                let rest = chosen().filter(|(axis, _)| !told.contains(&axis.key()));
                let span = self.found.first().map_or(0..0, |axis| axis.values[0].span());
                (span, joined(unnamed, rest.map(|(axis, value)| axis.word(value.get_ref()))))
            }
            (None, None) => (0..0, String::new()),
        };
        if self.has_axes() && name.len() > LONGEST_NAME {
            let form =
                self.found.iter().map(|axis| axis.placeholder(&self.found)).collect::<Vec<_>>().join("-");
            return wrong(
                span,
                format!(
                    "{name:?} would be a name of {} characters; accepted: up to {LONGEST_NAME}. Shorten it, or give \
                     its form, such as name = {form:?}",
                    name.len()
                ),
            );
        }
        Ok(name)
    }

    /// Returns the location in the file of a value of an axis.
    pub(super) fn value_span(&self, axis: usize, value: usize) -> Range<usize> {
        self.found[axis].values[value].span()
    }

    /// Rejects a name template unless it has one placeholder in braces for each axis and no other braces. A table without axes may have braces in
    /// its name.
    fn check_form(&self) -> Result<(), Wrong> {
        let Some(name) = self.name.as_ref().filter(|name| name.get_ref().contains(['{', '}'])) else {
            return Ok(());
        };
        if !self.has_axes() {
            return Ok(());
        }
        let mut rest = name.get_ref().clone();
        let known: Vec<String> = self.found.iter().map(|axis| axis.placeholder(&self.found)).collect();
        for placeholder in &known {
            if !rest.contains(placeholder) {
                let message = format!("the name lacks {placeholder}, so its values could not be told apart");
                return wrong(name.span(), message);
            }
            rest = rest.replace(placeholder, "");
        }
        if !rest.contains(['{', '}']) {
            return Ok(());
        }
        let (name, span) = (name.get_ref(), name.span());
        let accepted = known.join(", ");
        wrong(span, format!("{name:?} is not the form of a name; accepted: {accepted} in braces"))
    }
}

impl Found<'_> {
    /// Returns the last part of the dotted key: `cache` for `guest.cache`.
    fn key(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Returns the placeholder of this axis in a name template: the last part of its key, or the whole key if another axis ends in the same
    /// part.
    fn placeholder(&self, all: &[Self]) -> String {
        let alike = all.iter().filter(|other| other.key() == self.key()).count();
        let key = if alike == 1 { self.key().to_owned() } else { self.path.join(".") };
        format!("{{{key}}}")
    }

    /// Formats a value for use in a name: `iodepth4` for a whole number, `direct` or `no-direct` for a boolean, the value alone for others.
    fn word(&self, value: &DeValue<'_>) -> String {
        match value {
            DeValue::Boolean(true) => self.key().to_owned(),
            DeValue::Boolean(false) => format!("no-{}", self.key()),
            DeValue::Integer(number) => format!("{}{number}", self.key()),
            other => plain(&shown(other)),
        }
    }
}

fn joined(name: &str, words: impl Iterator<Item = String>) -> String {
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join("-")
}

/// Replaces characters that are not allowed in names with single dashes.
fn plain(text: &str) -> String {
    let part = |c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c));
    text.split(part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// Formats a value as in the file, without quotes.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.clone().into_owned(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => value.type_str().to_owned(),
    }
}

fn find<'i>(table: &DeTable<'i>, path: &mut Vec<String>, found: &mut Vec<Found<'i>>) -> Result<(), Wrong> {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => find(inner, path, found)?,
            // The concurrent jobs of a workload are not alternatives.
            DeValue::Array(_) if path.as_slice() == ["beside"] => {}
            DeValue::Array(values) => {
                check_list(&path.join("."), value.span(), values)?;
                found.push(Found { path: path.clone(), values: values.iter().cloned().collect() });
            }
            _ => {}
        }
        path.pop();
    }
    Ok(())
}

fn check_list(key: &str, span: Range<usize>, values: &[Spanned<DeValue<'_>>]) -> Result<(), Wrong> {
    if key == "name" {
        return wrong(
            span,
            "a name is no list; accepted: text, in which {key} stands for the value of a list",
        );
    }
    if values.is_empty() {
        return wrong(span, format!("{key} = []: a list has at least one value"));
    }
    let mut seen = HashSet::new();
    for value in values {
        if matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_)) {
            let message =
                format!("{key} is a list of {}s; give lists to the keys in it", value.get_ref().type_str());
            return wrong(value.span(), message);
        }
        if !seen.insert((value.get_ref().type_str(), shown(value.get_ref()))) {
            return wrong(value.span(), format!("{key} has {} twice", shown(value.get_ref())));
        }
    }
    Ok(())
}

fn set<'i>(table: &mut DeTable<'i>, path: &[String], value: Spanned<DeValue<'i>>) {
    let Some((key, rest)) = path.split_first() else { return };
    match table.get_mut(key.as_str()) {
        Some(place) if rest.is_empty() => *place = value,
        Some(place) => {
            if let DeValue::Table(inner) = place.get_mut() {
                set(inner, rest, value);
            }
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;

    const WORK: &str = "[[workload]]\nrw = \"randread\"\n";

    fn names(text: &str) -> Vec<String> {
        let plan = Plan::from_toml(text).expect("valid");
        plan.targets
            .into_iter()
            .map(|target| target.name)
            .chain(plan.workloads.into_iter().map(|workload| workload.name))
            .collect()
    }

    fn guest(keys: &str) -> String {
        format!("[[target]]\nname = \"vm\"\nfile = {{ dir = \"/srv\" }}\nguest = {{ {keys} }}\n{WORK}")
    }

    #[test]
    fn every_combination_has_a_name_of_its_own() {
        let text = guest(r#"cache = ["none", "directsync"], aio = ["threads", "native"]"#);
        let targets = ["vm-none-threads", "vm-none-native", "vm-directsync-threads", "vm-directsync-native"];
        assert_eq!(names(&text), [&targets[..], &["randread-4k-qd1"]].concat());
        let plan = Plan::from_toml(&text).expect("valid");
        let last = plan.targets[3].guest().expect("a guest");
        assert_eq!((last.cache.word(), last.aio.word()), ("directsync", "native"));
        assert_eq!(plan.baseline, "vm-none-threads");
        // Numbers and booleans get the key as a prefix.
        let text = guest("vcpus = [1, 4], iothread = [true, false]");
        assert_eq!(
            names(&text)[..4],
            ["vm-vcpus1-iothread", "vm-vcpus1-no-iothread", "vm-vcpus4-iothread", "vm-vcpus4-no-iothread"]
        );
        // Name templates, and values that a name cannot contain.
        let text = guest(r#"cache = ["none"]"#).replace("\"/srv\"", "[\"/srv\", \"/mnt/nfs 2\"]");
        assert_eq!(names(&text)[..2], ["vm-srv-none", "vm-mnt-nfs-2-none"]);
        let text = text.replace("\"vm\"", "\"{cache}.on.{dir}\"");
        assert_eq!(names(&text)[..2], ["none.on.srv", "none.on.mnt-nfs-2"]);
    }

    #[test]
    fn workloads_multiply_by_their_own_lists_and_by_those_they_inherit() {
        let target = "[[target]]\nname = \"a\"\npath = \"/a\"\n";
        let text = format!(
            "[defaults]\niodepth = [1, 32]\n{target}\
             [[workload]]\nname = \"mix\"\nrw = \"randrw\"\nbs = [\"4k\", \"64k\"]\n\
             [[workload]]\nrw = [\"read\", \"write\"]\nnumjobs = [1, 2]\niodepth = 4"
        );
        assert_eq!(
            names(&text)[1..],
            [
                "mix-4k-iodepth1",
                "mix-4k-iodepth32",
                "mix-64k-iodepth1",
                "mix-64k-iodepth32",
                "read-4k-qd4-numjobs1",
                "read-4k-qd4-numjobs2",
                "write-4k-qd4-numjobs1",
                "write-4k-qd4-numjobs2",
            ]
        );
        let axes = Plan::read(&text).expect("valid").axes;
        let axes: Vec<(&str, &str)> = axes.iter().map(|axis| (&axis.of[..], &axis.key[..])).collect();
        assert_eq!(axes, [("mix", "bs"), ("mix", "iodepth"), ("", "rw"), ("", "numjobs")]);
    }

    #[test]
    fn impossible_combinations_are_left_out_by_name() {
        let text = guest(r#"cache = ["none", "writeback"], aio = ["threads", "native"]"#);
        let reading = Plan::read(&text).expect("valid");
        assert_eq!(reading.plan.targets.len(), 3);
        let left_out = &reading.left_out[..];
        assert!(
            matches!(left_out, [one] if one.name == "vm-writeback-native" && one.reason.contains("needs cache")),
            "{left_out:?}"
        );
        let workload = "ioengine = [\"psync\", \"libaio\"]\niodepth = [1, 8]";
        let reading = Plan::read(&format!("{}{workload}", guest(""))).expect("valid");
        assert_eq!((reading.plan.workloads.len(), reading.left_out.len()), (3, 1));
        assert_eq!(reading.left_out[0].name, "randread-4k-qd8-psync");
    }

    #[test]
    fn what_is_wrong_with_a_list_is_said_where_it_is() {
        let long = "a-long-name-that-leaves-no-room";
        for (keys, said) in [
            ("cache = []", "line 4, column 19: guest.cache = []: a list has at least one value"),
            ("cache = [\"none\", \"none\"]", "line 4, column 28: guest.cache has none twice"),
            ("cache = [\"none\", \"nonne\"]", "line 4, column 28: \"nonne\" is not a known cache"),
            ("chace = [\"none\"]", "line 4, column 11: `chace` is not a key here; did you mean `cache`?"),
            ("vcpus = [1, \"2\"]", "line 4, column 23: string \"2\" does not belong here"),
            (
                "vcpus = [1, 0]",
                "line 4, column 23: no combination with guest.vcpus = 0 can be built: vcpus = 0: accepted",
            ),
            (
                "memory = [\"1GiB\", \"1024m\"]",
                "line 1, column 1: \"vm-1GiB\" and \"vm-1024m\" are the same target",
            ),
            ("vcpus = [[1]]", "line 4, column 20: guest.vcpus is a list of arrays"),
        ] {
            let error = Plan::from_toml(&guest(keys)).expect_err(keys).to_string();
            assert!(error.starts_with(said), "{keys}: {error}");
        }
        let two = guest("cache = [\"writethrough\", \"directsync\"]");
        for (from, to, said) in [
            ("\"vm\"", "[\"a\", \"b\"]", "line 2, column 8: a name is no list"),
            ("\"vm\"", "\"vm-{bus}\"", "line 2, column 8: the name lacks {cache}"),
            (
                "\"vm\"",
                "\"vm-{bus}-{cache}\"",
                "line 2, column 8: \"vm-{bus}-{cache}\" is not the form of a name; accepted: {cache} in",
            ),
            (
                "\"vm\"",
                &format!("\"{long}\""),
                "line 2, column 8: \"a-long-name-that-leaves-no-room-writethrough\" would be a name of 44 characters; accepted: up to 40. Shorten it, or give its form, such as name = \"{cache}\"",
            ),
        ] {
            let error = Plan::from_toml(&two.replace(from, to)).expect_err(to).to_string();
            assert!(error.starts_with(said), "{to}: {error}");
        }
        let many = |n: u32| (1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let error = Plan::from_toml(&guest(&format!("vcpus = [{}], queues = [{}]", many(20), many(11))));
        assert!(
            error.expect_err("too many").to_string().contains("20 x 11 combinations; accepted: up to 200")
        );
        let error = Plan::from_toml(&format!("repeat = 1000\n{}iodepth = [{}]", guest(""), many(11)));
        assert!(
            error.expect_err("too many").to_string().contains("11000 measurements; accepted: up to 10000")
        );
    }

    #[test]
    fn a_neighbour_is_one() {
        let plan = |keys: &str| {
            let noisy = "[[neighbour]]\ntarget = { name = \"noisy\", path = \"/n\" }";
            Plan::from_toml(&format!("{}{noisy}\nworkload = {{ {keys} }}", guest("")))
        };
        assert_eq!(plan("rw = \"write\"").expect("valid").neighbours[0].workload.name, "write-4k-qd1");
        let error = plan("iodepth = [1, 2]").expect_err("two").to_string();
        assert!(error.contains("line 9, column 25: a neighbour has one value for each key"), "{error}");
    }
}
