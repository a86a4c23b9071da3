//! The grammar of job files: sections, options, comments, includes, variables and keywords.

use std::sync::Arc;

use super::expression::evaluate;
use super::{Included, MOST_JOBS, Machine, Place, Surroundings, Trouble};

/// How deep files may include one another.
const DEEPEST: usize = 8;
/// How many files may be included in all: two that name one another several times would never end.
const MOST: usize = 100;
/// How many options all jobs may have, those of `[global]` counted for each, and long ones as several.
const MOST_OPTIONS: usize = 1 << 16;
/// Bytes of an option that counts as one.
const OPTION: usize = 64;
/// Bytes of the longest value, with what its variables hold.
const LONGEST_VALUE: usize = 64 << 10;

/// A section that is a job, with what `[global]` says above it.
#[derive(Debug, Clone)]
pub(super) struct Section {
    /// Of its header.
    pub(super) place: Place,
    pub(super) name: String,
    /// In the order in which they count: those of `[global]` first.
    pub(super) options: Vec<Setting>,
}

/// An option as it stands in a file.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) place: Place,
    /// The whole of it, for errors.
    pub(super) quoted: String,
    pub(super) name: String,
    /// Absent where the option stands alone.
    pub(super) value: Option<String>,
}

impl Setting {
    /// As how many options it counts.
    fn weight(&self) -> usize {
        1 + (self.quoted.len() + self.value.as_ref().map_or(0, String::len)) / OPTION
    }
}

/// Reads the sections of a file and of those it includes.
pub(super) fn sections(
    file: &str,
    text: &str,
    around: &Surroundings<'_>,
    trouble: &mut Trouble,
) -> Vec<Section> {
    let mut reader = Reader {
        around,
        trouble,
        globals: Vec::new(),
        sections: Vec::new(),
        inside: Inside::Nothing,
        included: 0,
        options: 0,
        is_over: false,
    };
    reader.read(&file.into(), text, 0);
    reader.sections
}

/// Where an option that comes next belongs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Inside {
    Nothing,
    Global,
    Job,
}

struct Reader<'a, 'b> {
    around: &'a Surroundings<'b>,
    trouble: &'a mut Trouble,
    globals: Vec<Setting>,
    sections: Vec<Section>,
    inside: Inside,
    included: usize,
    /// Options of all sections so far.
    options: usize,
    is_over: bool,
}

impl Reader<'_, '_> {
    fn read(&mut self, file: &Arc<str>, text: &str, depth: usize) {
        for (number, line) in text.lines().enumerate() {
            let place = Place { file: Arc::clone(file), line: number + 1 };
            // As fio does, wherever it stands in the line.
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if self.is_over || self.trouble.is_full() {
                return;
            }
            if let Some(header) = line.strip_prefix('[') {
                self.header(place, line, header, depth);
            } else if self.inside == Inside::Nothing {
                let why = "it stands before the first section; accepted: a name in brackets above it, such as [global]";
                self.trouble.add(&place, line.into(), why.into());
            } else if let Some(name) = included(line) {
                self.include(&place, line, name, depth);
            } else {
                self.setting(place, line);
            }
        }
    }

    fn header(&mut self, place: Place, line: &str, header: &str, depth: usize) {
        let name = header.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
        let Some(name) = name else {
            return self.trouble.add(
                &place,
                line.into(),
                "accepted: a name in brackets, such as [reader]".into(),
            );
        };
        if depth > 0 {
            let why = "an included file has no sections of its own; accepted: options for the section that includes it";
            return self.trouble.add(&place, line.into(), why.into());
        }
        if name == "global" {
            self.inside = Inside::Global;
            return;
        }
        self.inside = Inside::Job;
        self.options += self.globals.iter().map(Setting::weight).sum::<usize>();
        if self.sections.len() == MOST_JOBS || self.options > MOST_OPTIONS {
            return self.too_many(&place, line);
        }
        self.sections.push(Section { place, name: name.to_owned(), options: self.globals.clone() });
    }

    /// Refuses what no file has that somebody wrote; the rest is not read.
    fn too_many(&mut self, place: &Place, line: &str) {
        let why =
            format!("accepted: up to {MOST_JOBS} sections and {MOST_OPTIONS} options in all; split the file");
        self.trouble.add(place, line.into(), why);
        self.is_over = true;
    }

    fn include(&mut self, place: &Place, line: &str, name: &str, depth: usize) {
        if depth >= DEEPEST {
            let why = format!("files include one another more than {DEEPEST} deep");
            return self.trouble.add(place, line.into(), why);
        }
        self.included += 1;
        if self.included > MOST {
            return self.trouble.add(place, line.into(), format!("more than {MOST} files are included"));
        }
        match (self.around.include)(&place.file, name) {
            Ok(Included { file, text }) => self.read(&file.into(), &text, depth + 1),
            Err(why) => self.trouble.add(place, line.into(), why),
        }
    }

    fn setting(&mut self, place: Place, line: &str) {
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (line, None),
        };
        let value = match value.map(|value| substituted(value, self.around)).transpose() {
            Ok(value) => value,
            Err(why) => return self.trouble.add(&place, line.into(), why),
        };
        let setting = Setting { place, quoted: line.into(), name: name.to_owned(), value };
        self.options += setting.weight();
        if self.options > MOST_OPTIONS {
            return self.too_many(&setting.place, line);
        }
        match self.sections.last_mut().filter(|_| self.inside == Inside::Job) {
            Some(section) => section.options.push(setting),
            None => self.globals.push(setting),
        }
    }
}

/// The file that a line includes.
fn included(line: &str) -> Option<&str> {
    let name = line.strip_prefix("include")?;
    name.starts_with(char::is_whitespace).then(|| name.trim()).filter(|name| !name.starts_with('='))
}

/// A value with its variables and keywords replaced. With a keyword in it, it is calculated.
fn substituted(value: &str, around: &Surroundings<'_>) -> Result<String, String> {
    let value = with_variables(value, around.variable)?;
    let Some(text) = with_keywords(&value, around.machine) else { return Ok(value) };
    let refuse = |why: String| {
        format!(
            "{why}; accepted beside a keyword: whole numbers without a suffix, + - * / and parentheses, such as 8*$pagesize"
        )
    };
    match evaluate(&text, 1024) {
        Ok(number) if !text.contains(|c: char| c.is_ascii_alphabetic()) => Ok(number.to_string()),
        Ok(_) => Err(refuse(format!("{text:?} has a suffix"))),
        Err(why) => Err(refuse(why)),
    }
}

fn with_variables(value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("\"${\" is not closed; accepted: ${NAME}")?;
        let found = variable(name).ok_or_else(|| {
            format!("the environment has no variable {name:?}; set it, or write its value into the file")
        })?;
        text.push_str(before);
        text.push_str(&found);
        if text.len() > LONGEST_VALUE {
            return Err(format!("with its variables it is longer than {LONGEST_VALUE} bytes"));
        }
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn with_keywords(value: &str, machine: Machine) -> Option<String> {
    let Machine { pagesize, mb_memory, ncpus } = machine;
    let words = [("$pagesize", pagesize), ("$mb_memory", mb_memory), ("$ncpus", ncpus)];
    words.iter().any(|(word, _)| value.contains(word)).then(|| {
        words.iter().fold(value.to_owned(), |text, (word, number)| text.replace(word, &number.to_string()))
    })
}
