//! Parses the syntax of job files: sections, options, comments, includes, variables and keywords.

use std::sync::Arc;

use super::expression::evaluate;
use super::{FileLine, Included, LineErrors, MOST_JOBS, MachineKeywords, Surroundings};

/// Maximum nesting depth of included files.
const DEEPEST: usize = 8;
/// Maximum number of included files, which also ends recursive includes.
const MOST: usize = 100;
/// Maximum number of options over all jobs. An option of `[global]` counts once more in each job below it; a long option counts as several.
const MOST_OPTIONS: usize = 1 << 16;
/// Number of bytes of an option's line and value that count as one more option.
const OPTION: usize = 64;
/// Maximum length in bytes of a value up to the end of its last variable, after expansion.
const LONGEST_VALUE: usize = 64 << 10;

/// A section that describes a job, including the options of `[global]` sections above.
#[derive(Debug, Clone)]
pub(super) struct Section {
    /// Position of the section's header in the file.
    pub(super) location: FileLine,
    pub(super) name: String,
    /// Options in file order, those of `[global]` first; a later option replaces an earlier one.
    pub(super) options: Vec<OptionLine>,
}

/// An option as written in a file.
#[derive(Debug, Clone)]
pub(super) struct OptionLine {
    pub(super) location: FileLine,
    /// The line without comments, for error messages.
    pub(super) quoted: String,
    pub(super) name: String,
    /// Value of the option; `None` if it has no `=`.
    pub(super) value: Option<String>,
}

impl OptionLine {
    /// Returns the weight of the option in `MOST_OPTIONS`: 1, and more for a long line or value.
    fn weight(&self) -> usize {
        1 + (self.quoted.len() + self.value.as_ref().map_or(0, String::len)) / OPTION
    }
}

/// Parses the sections of a file and of its included files.
pub(super) fn sections(
    file: &str,
    text: &str,
    around: &Surroundings<'_>,
    trouble: &mut LineErrors,
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

/// Kind of the current section: none yet, `[global]`, or a job.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Inside {
    Nothing,
    Global,
    Job,
}

struct Reader<'a, 'b> {
    around: &'a Surroundings<'b>,
    trouble: &'a mut LineErrors,
    globals: Vec<OptionLine>,
    sections: Vec<Section>,
    inside: Inside,
    included: usize,
    /// Number of options in all sections so far.
    options: usize,
    is_over: bool,
}

impl Reader<'_, '_> {
    fn read(&mut self, file: &Arc<str>, text: &str, depth: usize) {
        for (number, line) in text.lines().enumerate() {
            let location = FileLine { file: Arc::clone(file), line: number + 1 };
            // As in fio, comments may start anywhere in the line.
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if self.is_over || self.trouble.is_full() {
                return;
            }
            if let Some(header) = line.strip_prefix('[') {
                self.header(location, line, header, depth);
            } else if self.inside == Inside::Nothing {
                let why = "it stands before the first section; accepted: a name in brackets above it, such as [global]";
                self.trouble.add(&location, line.into(), why.into());
            } else if let Some(name) = included(line) {
                self.include(&location, line, name, depth);
            } else {
                self.setting(location, line);
            }
        }
    }

    fn header(&mut self, location: FileLine, line: &str, header: &str, depth: usize) {
        let name = header.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
        let Some(name) = name else {
            return self.trouble.add(
                &location,
                line.into(),
                "accepted: a name in brackets, such as [reader]".into(),
            );
        };
        if depth > 0 {
            let why = "an included file has no sections of its own; accepted: options for the section that includes it";
            return self.trouble.add(&location, line.into(), why.into());
        }
        if name == "global" {
            self.inside = Inside::Global;
            return;
        }
        self.inside = Inside::Job;
        self.options += self.globals.iter().map(OptionLine::weight).sum::<usize>();
        if self.sections.len() == MOST_JOBS || self.options > MOST_OPTIONS {
            return self.too_many(&location, line);
        }
        self.sections.push(Section { location, name: name.to_owned(), options: self.globals.clone() });
    }

    /// Reports that the file exceeds a limit, and ends parsing.
    fn too_many(&mut self, location: &FileLine, line: &str) {
        let why =
            format!("accepted: up to {MOST_JOBS} sections and {MOST_OPTIONS} options in all; split the file");
        self.trouble.add(location, line.into(), why);
        self.is_over = true;
    }

    fn include(&mut self, location: &FileLine, line: &str, name: &str, depth: usize) {
        if depth >= DEEPEST {
            let why = format!("files include one another more than {DEEPEST} deep");
            return self.trouble.add(location, line.into(), why);
        }
        self.included += 1;
        if self.included > MOST {
            return self.trouble.add(location, line.into(), format!("more than {MOST} files are included"));
        }
        match (self.around.include)(&location.file, name) {
            Ok(Included { file, text }) => self.read(&file.into(), &text, depth + 1),
            Err(why) => self.trouble.add(location, line.into(), why),
        }
    }

    fn setting(&mut self, location: FileLine, line: &str) {
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (line, None),
        };
        let value = match value.map(|value| substituted(value, self.around)).transpose() {
            Ok(value) => value,
            Err(why) => return self.trouble.add(&location, line.into(), why),
        };
        let setting = OptionLine { location, quoted: line.into(), name: name.to_owned(), value };
        self.options += setting.weight();
        if self.options > MOST_OPTIONS {
            return self.too_many(&setting.location, line);
        }
        match self.sections.last_mut().filter(|_| self.inside == Inside::Job) {
            Some(section) => section.options.push(setting),
            None => self.globals.push(setting),
        }
    }
}

/// Returns the file that an include line names; `None` for other lines.
fn included(line: &str) -> Option<&str> {
    let name = line.strip_prefix("include")?;
    name.starts_with(char::is_whitespace).then(|| name.trim()).filter(|name| !name.starts_with('='))
}

/// Expands variables and keywords in a value. A value with a keyword is evaluated as an expression.
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

fn with_keywords(value: &str, machine: MachineKeywords) -> Option<String> {
    let MachineKeywords { pagesize, mb_memory, ncpus } = machine;
    let words = [("$pagesize", pagesize), ("$mb_memory", mb_memory), ("$ncpus", ncpus)];
    words.iter().any(|(word, _)| value.contains(word)).then(|| {
        words.iter().fold(value.to_owned(), |text, (word, number)| text.replace(word, &number.to_string()))
    })
}
