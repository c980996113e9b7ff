//! A compiled pattern, as Python's `pipelines/patterns/program.py` writes it: words of 64 bits, little endian.
//!
//! ```text
//! version · strings (count; length, bytes) · within or -1 · skip mode, skip variable · limit · rows before · flags
//! columns (count; kind) · slots (count, how many that conditions need; kind, variable or -1, code or -1)
//! codes (count; words, operation and argument) · variables (count; name, local code, code with history)
//! states (count; items) · measures (count; code, kind)
//! ```
//! Nothing in it is trusted: every index is checked here, once, so that the matcher need not.

use super::Refused;

pub const VERSION: i64 = 1;
/// No row, node or variable.
pub const NONE: u32 = u32::MAX;

/// What a column or a measure holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int,
    Float,
    Text,
}

/// One step of a condition's stack program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(u32),
    /// A column of the row that is looked at.
    Column(u32),
    /// A column of a row so many before it.
    Prev {
        column: u32,
        back: u32,
    },
    /// A column of a variable's first row (its slot).
    First {
        column: u32,
        slot: u32,
    },
    /// A column of a variable's last row, or so many of its rows before that.
    Last {
        column: u32,
        slot: u32,
        back: u32,
    },
    /// Where the row is that a slot holds (first, last, lowest or highest), or so many rows before the last.
    RowOf {
        slot: u32,
        back: u32,
    },
    /// The value of an aggregate (its slot).
    Aggregate(u32),
    MatchNumber,
    Classifier,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Neg,
    Abs,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Not,
    IsNull,
    /// The value and so many choices are on the stack.
    In(u32),
    Like(u32),
    ToInt,
    ToFloat,
    /// Go on there if the top is false (and keep it).
    IfFalse(u32),
    IfTrue(u32),
    /// Go on there if the top is not null; drop it if it is.
    IfNotNull(u32),
}

/// What a slot adds up over the rows of a variable (or of all).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    First,
    Last,
    Count,
    SumInt,
    SumFloat,
    Average,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub kind: SlotKind,
    /// The variable, NONE for all rows of the match.
    pub var: u32,
    /// The code of what is added up, NONE for `count(*)`.
    pub code: u32,
}

impl Slot {
    #[inline]
    pub fn counts(&self, var: u32) -> bool {
        self.var == NONE || self.var == var
    }

    pub fn holds_row(&self) -> bool {
        matches!(self.kind, SlotKind::First | SlotKind::Min | SlotKind::Max)
    }

    pub fn holds_node(&self) -> bool {
        self.kind == SlotKind::Last
    }
}

#[derive(Clone, Debug)]
pub struct Variable {
    /// Index of its name in the strings.
    pub name: u32,
    /// What can be said from the row alone, NONE if nothing.
    pub local: u32,
    /// The rest of the condition, NONE if nothing.
    pub history: u32,
}

/// Take a row for a variable and go to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    pub var: u32,
    pub next: u32,
}

/// A way on from a state; those of a state are in the order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Take(Take),
    /// Rows that none of these takes are passed over, unless they are of a forbidden variable.
    Wait {
        takes: Vec<Take>,
        forbidden: Vec<u32>,
    },
    Accept,
    /// The match is complete when its time runs out without a row of these variables.
    Absent(Vec<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    PastLastRow,
    ToNextRow,
    ToFirst(u32),
    ToLast(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Measure {
    pub code: u32,
    pub kind: Kind,
}

#[derive(Debug)]
pub struct Program {
    pub strings: Vec<String>,
    pub within: Option<i64>,
    pub skip: Skip,
    pub limit: usize,
    pub rows_before: usize,
    /// No condition looks at rows that were matched before.
    pub free_of_history: bool,
    pub numbered: bool,
    pub timeouts: bool,
    pub partials: bool,
    pub columns: Vec<Kind>,
    pub slots: Vec<Slot>,
    /// So many of the slots are needed while matching; the rest by measures only.
    pub running: usize,
    pub codes: Vec<Vec<Op>>,
    /// How high the stack of each code grows.
    pub depths: Vec<usize>,
    pub variables: Vec<Variable>,
    /// All items, those of a state one after the other.
    pub items: Vec<Item>,
    /// Where the items of each state begin, and the end.
    pub states: Vec<u32>,
    pub measures: Vec<Measure>,
}

impl Program {
    pub fn read(data: &[u8]) -> Result<Program, Refused> {
        let mut reader = Reader { data, at: 0 };
        let program = reader.program()?;
        if reader.at != data.len() {
            return Err(broken("bytes after its end"));
        }
        Ok(program)
    }

    #[inline]
    pub fn items_of(&self, state: u32) -> std::ops::Range<u32> {
        self.states[state as usize]..self.states[state as usize + 1]
    }

    #[inline]
    pub fn text(&self, index: u32) -> &str {
        &self.strings[index as usize]
    }
}

fn broken(what: &str) -> Refused {
    Refused::Broken(format!("the compiled pattern cannot be read: {what}"))
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn bytes(&mut self, length: usize) -> Result<&[u8], Refused> {
        let end = self
            .at
            .checked_add(length)
            .filter(|&end| end <= self.data.len());
        let end = end.ok_or_else(|| broken("it is cut short"))?;
        let found = &self.data[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn word(&mut self) -> Result<i64, Refused> {
        let bytes = self.bytes(8)?;
        Ok(i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// A count of things that take at least a word each.
    fn count(&mut self) -> Result<usize, Refused> {
        let left = (self.data.len() - self.at) / 8;
        let count = usize::try_from(self.word()?).map_err(|_| broken("a count below 0"))?;
        if count > left {
            return Err(broken("a count larger than what is there"));
        }
        Ok(count)
    }

    fn index(&mut self, of: usize) -> Result<u32, Refused> {
        match usize::try_from(self.word()?) {
            Ok(index) if index < of => Ok(index as u32),
            _ => Err(broken("an index that points nowhere")),
        }
    }

    fn maybe(&mut self, of: usize) -> Result<u32, Refused> {
        let before = self.at;
        if self.word()? == -1 {
            return Ok(NONE);
        }
        self.at = before;
        self.index(of)
    }

    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Refused>,
    ) -> Result<Vec<T>, Refused> {
        let count = self.count()?;
        (0..count).map(|_| one(self)).collect()
    }

    fn program(&mut self) -> Result<Program, Refused> {
        if self.word()? != VERSION {
            return Err(broken("it is of another version"));
        }
        let strings = self.list(|r| {
            let length = usize::try_from(r.word()?).map_err(|_| broken("a length below 0"))?;
            let bytes = r.bytes(length)?.to_vec();
            String::from_utf8(bytes).map_err(|_| broken("a text that is not UTF-8"))
        })?;
        let within = Some(self.word()?).filter(|&within| within >= 0);
        let (skip, skip_var) = (self.word()?, self.word()?);
        let limit = self.word()?.max(1) as usize;
        let rows_before = self.word()?.clamp(0, 1 << 20) as usize;
        let flags = self.word()?;
        let columns = self.list(|r| kind(r.word()?))?;
        let (slots, running) = self.slots()?;
        let codes = self.list(|r| r.list(|r| r.op(strings.len(), columns.len(), &slots)))?;
        let variables = self.list(|r| {
            Ok(Variable {
                name: r.index(strings.len())?,
                local: r.maybe(codes.len())?,
                history: r.maybe(codes.len())?,
            })
        })?;
        if variables.len() >= usize::from(u16::MAX) {
            return Err(broken("too many variables"));
        }
        let (items, states) = self.states(variables.len())?;
        let measures = self.list(|r| {
            Ok(Measure {
                code: r.index(codes.len())?,
                kind: kind(r.word()?)?,
            })
        })?;
        for slot in &slots {
            let known = slot.var == NONE || (slot.var as usize) < variables.len();
            if !known || (slot.code != NONE && slot.code as usize >= codes.len()) {
                return Err(broken("a slot that points nowhere"));
            }
        }
        let depths = codes
            .iter()
            .map(|code| depth(code))
            .collect::<Result<_, _>>()?;
        let skip = skip_mode(skip, skip_var, variables.len())?;
        Ok(Program {
            strings,
            within,
            skip,
            limit,
            rows_before,
            free_of_history: flags & 1 != 0,
            numbered: flags & 2 != 0,
            timeouts: flags & 4 != 0,
            partials: flags & 8 != 0,
            columns,
            slots,
            running,
            codes,
            depths,
            variables,
            items,
            states,
            measures,
        })
    }

    fn slots(&mut self) -> Result<(Vec<Slot>, usize), Refused> {
        let running = usize::try_from(self.word()?).map_err(|_| broken("a count below 0"))?;
        let any = u32::MAX as usize - 1;
        let slots = self.list(|r| {
            Ok(Slot {
                kind: slot_kind(r.word()?)?,
                var: r.maybe(any)?,
                code: r.maybe(any)?,
            })
        })?;
        if running > slots.len() {
            return Err(broken("more running slots than slots"));
        }
        Ok((slots, running))
    }

    fn states(&mut self, variables: usize) -> Result<(Vec<Item>, Vec<u32>), Refused> {
        let count = self.count()?;
        if count == 0 {
            return Err(broken("no states"));
        }
        let (mut items, mut states) = (Vec::new(), vec![0]);
        for _ in 0..count {
            items.extend(self.list(|r| r.item(variables, count))?);
            states.push(items.len() as u32);
        }
        Ok((items, states))
    }

    fn item(&mut self, variables: usize, states: usize) -> Result<Item, Refused> {
        let take = |r: &mut Self| {
            Ok(Take {
                var: r.index(variables)?,
                next: r.index(states)?,
            })
        };
        Ok(match self.word()? {
            0 => Item::Take(take(self)?),
            1 => Item::Wait {
                takes: self.list(take)?,
                forbidden: self.list(|r| r.index(variables))?,
            },
            2 => Item::Accept,
            3 => Item::Absent(self.list(|r| r.index(variables))?),
            _ => return Err(broken("an unknown item")),
        })
    }

    fn op(&mut self, strings: usize, columns: usize, slots: &[Slot]) -> Result<Op, Refused> {
        let is = |slots: &[Slot], slot: u32, kind: SlotKind| {
            if slots[slot as usize].kind == kind {
                Ok(slot)
            } else {
                Err(broken("a slot of another kind"))
            }
        };
        let back = |word: i64| u32::try_from(word).map_err(|_| broken("a step below 0"));
        Ok(match self.word()? {
            0 => Op::Null,
            1 => Op::Bool(self.word()? != 0),
            2 => Op::Int(self.word()?),
            3 => Op::Float(f64::from_bits(self.word()? as u64)),
            4 => Op::Text(self.index(strings)?),
            5 => Op::Column(self.index(columns)?),
            6 => Op::Prev {
                column: self.index(columns)?,
                back: back(self.word()?)?,
            },
            7 => Op::First {
                column: self.index(columns)?,
                slot: is(slots, self.index(slots.len())?, SlotKind::First)?,
            },
            8 => Op::Last {
                column: self.index(columns)?,
                slot: is(slots, self.index(slots.len())?, SlotKind::Last)?,
                back: back(self.word()?)?,
            },
            9 => Op::Aggregate(self.index(slots.len())?),
            10 => Op::MatchNumber,
            11 => Op::Classifier,
            12 => Op::Add,
            13 => Op::Sub,
            14 => Op::Mul,
            15 => Op::Div,
            16 => Op::Mod,
            17 => Op::Neg,
            18 => Op::Abs,
            19 => Op::Eq,
            20 => Op::Ne,
            21 => Op::Lt,
            22 => Op::Le,
            23 => Op::Gt,
            24 => Op::Ge,
            25 => Op::And,
            26 => Op::Or,
            27 => Op::Not,
            28 => Op::IsNull,
            29 => Op::In(back(self.word()?)?),
            30 => Op::Like(self.index(strings)?),
            31 => Op::ToInt,
            32 => Op::ToFloat,
            33 => Op::IfFalse(back(self.word()?)?),
            34 => Op::IfTrue(back(self.word()?)?),
            35 => Op::IfNotNull(back(self.word()?)?),
            36 => {
                let slot = self.index(slots.len())?;
                let known = slots[slot as usize];
                if !known.holds_row() && !known.holds_node() {
                    return Err(broken("a slot of another kind"));
                }
                Op::RowOf {
                    slot,
                    back: back(self.word()?)?,
                }
            }
            _ => return Err(broken("an unknown operation")),
        })
    }
}

fn kind(word: i64) -> Result<Kind, Refused> {
    [Kind::Bool, Kind::Int, Kind::Float, Kind::Text]
        .get(usize::try_from(word).unwrap_or(usize::MAX))
        .copied()
        .ok_or_else(|| broken("an unknown type"))
}

fn slot_kind(word: i64) -> Result<SlotKind, Refused> {
    use SlotKind::*;
    [First, Last, Count, SumInt, SumFloat, Average, Min, Max]
        .get(usize::try_from(word).unwrap_or(usize::MAX))
        .copied()
        .ok_or_else(|| broken("an unknown slot"))
}

fn skip_mode(mode: i64, var: i64, variables: usize) -> Result<Skip, Refused> {
    let known = u32::try_from(var)
        .ok()
        .filter(|&var| (var as usize) < variables);
    let var = || known.ok_or_else(|| broken("an unknown variable to skip to"));
    Ok(match mode {
        0 => Skip::PastLastRow,
        1 => Skip::ToNextRow,
        2 => Skip::ToFirst(var()?),
        3 => Skip::ToLast(var()?),
        _ => return Err(broken("an unknown way to skip")),
    })
}

/// How high the stack grows: checks that no operation finds too little on it and that every code ends with one value.
fn depth(code: &[Op]) -> Result<usize, Refused> {
    let mut expected = vec![None; code.len() + 1];
    let (mut now, mut most) = (0_usize, 0);
    for (at, op) in code.iter().enumerate() {
        if expected[at].is_some_and(|depth| depth != now) {
            return Err(broken("a jump to another depth"));
        }
        let (taken, left) = effect(*op);
        if now < taken {
            return Err(broken("an operation without its values"));
        }
        if let Op::IfFalse(to) | Op::IfTrue(to) | Op::IfNotNull(to) = *op {
            let to = to as usize;
            if to <= at || to > code.len() {
                return Err(broken("a jump that points nowhere"));
            }
            expected[to] = Some(now);
        }
        now = now - taken + left;
        most = most.max(now);
    }
    if now != 1 || expected[code.len()].is_some_and(|depth| depth != 1) {
        return Err(broken("a code without one result"));
    }
    Ok(most)
}

/// How many values an operation takes from the stack, and how many it leaves.
fn effect(op: Op) -> (usize, usize) {
    match op {
        Op::Null | Op::Bool(_) | Op::Int(_) | Op::Float(_) | Op::Text(_) => (0, 1),
        Op::Column(_) | Op::Prev { .. } | Op::First { .. } | Op::Last { .. } => (0, 1),
        Op::RowOf { .. } | Op::Aggregate(_) | Op::MatchNumber | Op::Classifier => (0, 1),
        Op::Neg | Op::Abs | Op::Not | Op::IsNull | Op::Like(_) => (1, 1),
        Op::ToInt | Op::ToFloat | Op::IfFalse(_) | Op::IfTrue(_) => (1, 1),
        Op::IfNotNull(_) => (1, 0),
        Op::In(choices) => (choices as usize + 1, 1),
        _ => (2, 1),
    }
}
