//! Line plots in braille characters for terminals: a character is two dots wide and four dots high.

/// Width of a plot in characters; `ROWS` is its height.
const COLUMNS: usize = 48;
const ROWS: usize = 8;
/// Width of the vertical axis labels in characters.
const LABEL: usize = 8;
/// Bit of each dot in the code of a braille character, by column and row.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// A line through points, in ascending order of x; all coordinates are positive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// Character drawn at each point, so that lines differ without colours.
    pub(super) mark: Option<char>,
    pub(super) points: Vec<(f64, f64)>,
}

/// Plots all lines, with a linear x axis from 0 and a logarithmic y axis. Returns lines of text; empty with fewer than two points.
///
/// `across` and `up` format the labels of x and y.
pub(super) fn plot(
    lines: &[Line],
    across: impl Fn(f64) -> String,
    up: impl Fn(f64) -> String,
) -> Vec<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let (right, most) =
        points().fold((0.0_f64, 0.0_f64), |most, point| (most.0.max(point.0), most.1.max(point.1)));
    if points().count() < 2 || !(right > 0.0 && least > 0.0) {
        return Vec::new();
    }
    // A flat line is drawn at mid-height.
    let (least, most) = if most / least > 1.01 { (least, most) } else { (least / 2.0, most * 2.0) };
    let scaled = |&(x, y): &(f64, f64)| -> (f64, f64) {
        let height = (y / least).ln() / (most / least).ln();
        (x / right * (2 * COLUMNS - 1) as f64, (1.0 - height) * (4 * ROWS - 1) as f64)
    };
    let mut cells = vec![[0_u8; COLUMNS]; ROWS];
    let mut marks = vec![[None; COLUMNS]; ROWS];
    for line in lines {
        let spots: Vec<(f64, f64)> = line.points.iter().map(scaled).collect();
        for two in spots.windows(2) {
            for (x, y) in between(two[0], two[1]) {
                cells[y / 4][x / 2] |= DOTS[x % 2][y % 4];
            }
        }
        for (x, y) in spots.iter().map(|spot| dot(*spot)) {
            marks[y / 4][x / 2] = line.mark;
        }
    }
    let mut text = Vec::new();
    for (row, (cells, marks)) in cells.iter().zip(&marks).enumerate() {
        let label = match row {
            0 => up(most),
            _ if row == ROWS / 2 => up((least * most).sqrt()),
            _ if row == ROWS - 1 => up(least),
            _ => String::new(),
        };
        let drawn: String =
            cells.iter().zip(marks).map(|(cell, mark)| mark.unwrap_or_else(|| braille(*cell))).collect();
        text.push(format!("{label:>LABEL$} |{}", drawn.trim_end()));
    }
    let end = across(right);
    text.push(format!("{:>LABEL$} 0{end:>width$}", "", width = COLUMNS));
    text
}

/// Returns the dots on the straight line between two dots.
fn between(from: (f64, f64), to: (f64, f64)) -> impl Iterator<Item = (usize, usize)> {
    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
    let at = move |step: f64| {
        dot((from.0 + (to.0 - from.0) * step / steps, from.1 + (to.1 - from.1) * step / steps))
    };
    (0_u32..).map(f64::from).take_while(move |step| *step <= steps).map(at)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place within the plot")]
fn dot((x, y): (f64, f64)) -> (usize, usize) {
    (x.round() as usize, y.round() as usize)
}

/// Returns the braille character with these dots; a space if there are none, so that trailing blanks can be trimmed.
fn braille(dots: u8) -> char {
    if dots == 0 { ' ' } else { char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ') }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lines: &[Line]) -> String {
        plot(lines, |x| format!("{x}"), |y| format!("{y:.1}")).join("\n")
    }

    #[test]
    fn lines_go_through_their_points_and_marks_tell_them_apart() {
        let flat =
            Line { mark: Some('A'), points: vec![(10.0, 1.0), (50.0, 1.0), (90.0, 2.0), (100.0, 16.0)] };
        let steep = Line { mark: Some('B'), points: vec![(10.0, 2.0), (40.0, 8.0)] };
        let expected = [
            "    16.0 |                                               A",
            "         |                                              ⡸",
            "         |               ⢀⡠⠔⠊B                         ⢰⠁",
            "         |            ⣀⠤⠒⠁                            ⢠⠃",
            "     4.0 |        ⢀⠤⠒⠉                               ⢠⠋",
            "         |     B⠔⠊⠁                                 ⢀A",
            "         |                                 ⣀⣀⡠⠤⠔⠒⠒⠉⠉⠁",
            "     1.0 |     A⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀A⡠⠤⠤⠒⠒⠊⠉⠉",
            "         0                                             100",
        ];
        assert_eq!(drawn(&[flat, steep]), expected.join("\n"));
    }

    #[test]
    fn one_line_has_no_marks_and_a_flat_one_lies_in_the_middle() {
        let flat = drawn(&[Line { mark: None, points: vec![(1.0, 5.0), (2.0, 5.0)] }]);
        let drawn: Vec<&str> = flat.lines().filter(|line| line.contains('⠉')).collect();
        assert_eq!(drawn, [format!("     5.0 |{}{}", " ".repeat(24), "⠉".repeat(24))]);
    }

    #[test]
    fn without_two_points_there_is_nothing_to_draw() {
        assert!(plot(&[], |_| String::new(), |_| String::new()).is_empty());
        let one = Line { mark: None, points: vec![(1.0, 1.0)] };
        assert!(plot(&[one], |_| String::new(), |_| String::new()).is_empty());
    }
}
