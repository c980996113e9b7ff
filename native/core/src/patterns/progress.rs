//! Where matching stands in one key between two steps, as bytes: words of 32 bits, little endian.
//!
//! Rows are counted from the first that is kept. Of an attempt's tree only what its threads still hold is written.

use std::collections::{BTreeMap, VecDeque};

use super::Refused;
use super::attempt::{Attempt, Nodes, Thread};
use super::output::Told;
use super::program::{NONE, Program};

/// Starts whose threads are at the same items: they go the same way from here, and only their time runs out apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub items: Vec<u32>,
    /// The row at which the best match so far ends.
    pub candidate: u32,
    pub starts: VecDeque<u32>,
}

/// What became of a start: the row at which it ends, NONE if at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    pub end: u32,
    pub told: Told,
}

#[derive(Debug)]
pub struct Progress {
    /// All rows up to this time were given to the attempts.
    pub fed_until: i64,
    /// Of the rows that are kept and fed, those that a condition failed on: they have had their letter.
    pub failed: Vec<u32>,
    /// How many matches were told.
    pub number: i64,
    pub attempts: Vec<Attempt>,
    pub groups: Vec<Group>,
    /// Starts that are decided, and wait for earlier ones.
    pub decided: BTreeMap<u32, Decided>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            fed_until: i64::MIN,
            failed: Vec::new(),
            number: 0,
            attempts: Vec::new(),
            groups: Vec::new(),
            decided: BTreeMap::new(),
        }
    }
}

impl Progress {
    /// The first row that an attempt holds.
    pub fn first_start(&self) -> Option<u32> {
        self.first_open()
            .into_iter()
            .chain(self.decided.keys().next().copied())
            .min()
    }

    /// The first row from which a match may still come.
    pub fn first_open(&self) -> Option<u32> {
        let attempts = self.attempts.iter().map(|attempt| attempt.start);
        let groups = self
            .groups
            .iter()
            .filter_map(|group| group.starts.front().copied());
        attempts.chain(groups).min()
    }

    pub fn write(&self, program: &Program, first: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let mut word = |word: u32| out.extend_from_slice(&word.to_le_bytes());
        let row = |row: u32| if row == NONE { NONE } else { row - first };
        for long in [self.fed_until, self.number] {
            word(long as u32);
            word((long >> 32) as u32);
        }
        let failed = self.failed.iter().filter(|&&failed| failed >= first);
        word(failed.clone().count() as u32);
        failed.for_each(|&failed| word(row(failed)));
        word(self.groups.len() as u32);
        for group in &self.groups {
            word(row(group.candidate));
            word(group.items.len() as u32);
            group.items.iter().for_each(|&item| word(item));
            word(group.starts.len() as u32);
            group.starts.iter().for_each(|&start| word(row(start)));
        }
        word(self.decided.len() as u32);
        for (&start, decided) in &self.decided {
            word(row(start));
            word(row(decided.end));
            word(decided.told as u32);
        }
        word(self.attempts.len() as u32);
        for attempt in &self.attempts {
            write_attempt(program, attempt, &row, &mut word);
        }
        out
    }

    /// Up to when the rows of a key were fed, of what `write` wrote.
    pub fn fed_until(data: &[u8]) -> Result<i64, Refused> {
        Reader { data, rows: 0 }.long()
    }

    /// What `write` wrote for so many rows.
    pub fn read(program: &Program, data: &[u8], rows: u32) -> Result<Progress, Refused> {
        let mut reader = Reader { data, rows };
        let (fed_until, number) = (reader.long()?, reader.long()?);
        let failed = reader.list(Reader::row)?;
        let groups = reader.list(|r| {
            Ok(Group {
                candidate: r.maybe_row()?,
                items: r.list(|r| r.below(program.items.len()))?,
                starts: r.list(Reader::row)?.into(),
            })
        })?;
        let decided = reader.list(|r| {
            let (start, end) = (r.row()?, r.maybe_row()?);
            let told = if r.word()? == 0 {
                Told::Match
            } else {
                Told::Timeout
            };
            Ok((start, Decided { end, told }))
        })?;
        let attempts = reader.list(|r| r.attempt(program))?;
        if !reader.data.is_empty() {
            return Err(damaged());
        }
        Ok(Progress {
            fed_until,
            failed,
            number,
            attempts,
            groups,
            decided: decided.into_iter().collect(),
        })
    }
}

fn write_attempt(
    program: &Program,
    attempt: &Attempt,
    row: &impl Fn(u32) -> u32,
    word: &mut impl FnMut(u32),
) {
    let nodes = &attempt.nodes;
    let mut place = vec![NONE; nodes.len()];
    for at in attempt
        .threads
        .iter()
        .map(|t| t.node)
        .chain([attempt.candidate])
    {
        let mut at = at;
        while at != NONE && place[at as usize] == NONE {
            place[at as usize] = 0;
            at = nodes.parents[at as usize];
        }
    }
    let held: Vec<u32> = (0..nodes.len() as u32)
        .filter(|&n| place[n as usize] == 0)
        .collect();
    for (new, &old) in held.iter().enumerate() {
        place[old as usize] = new as u32;
    }
    let placed = |node: u32| {
        if node == NONE {
            NONE
        } else {
            place[node as usize]
        }
    };
    word(row(attempt.start));
    word(placed(attempt.candidate));
    word(attempt.threads.len() as u32);
    for thread in &attempt.threads {
        word(thread.item);
        word(placed(thread.node));
    }
    word(held.len() as u32);
    for &node in &held {
        let node = node as usize;
        word(row(nodes.rows[node]));
        word(nodes.vars[node]);
        word(placed(nodes.parents[node]));
        let slots = &nodes.held[node * program.running..(node + 1) * program.running];
        for (slot, value) in program.slots.iter().zip(slots) {
            let mut value = *value;
            if slot.holds_row() && value[0] >= 0 {
                value[0] = row(value[0] as u32).into();
            } else if slot.holds_node() && value[0] >= 0 {
                value[0] = placed(value[0] as u32).into();
            }
            for part in value {
                word(part as u32);
                word((part >> 32) as u32);
            }
        }
    }
}

fn damaged() -> Refused {
    Refused::Broken(
        "the kept state of a key cannot be read: was it written for another pattern?".into(),
    )
}

struct Reader<'a> {
    data: &'a [u8],
    rows: u32,
}

impl Reader<'_> {
    fn word(&mut self) -> Result<u32, Refused> {
        let (word, rest) = self.data.split_first_chunk::<4>().ok_or_else(damaged)?;
        self.data = rest;
        Ok(u32::from_le_bytes(*word))
    }

    fn long(&mut self) -> Result<i64, Refused> {
        Ok(i64::from(self.word()?) | (i64::from(self.word()?) << 32))
    }

    fn below(&mut self, end: usize) -> Result<u32, Refused> {
        let word = self.word()?;
        if (word as usize) < end {
            Ok(word)
        } else {
            Err(damaged())
        }
    }

    fn row(&mut self) -> Result<u32, Refused> {
        self.below(self.rows as usize)
    }

    fn maybe_row(&mut self) -> Result<u32, Refused> {
        self.maybe(self.rows as usize)
    }

    fn maybe(&mut self, end: usize) -> Result<u32, Refused> {
        let word = self.word()?;
        if word == NONE || (word as usize) < end {
            Ok(word)
        } else {
            Err(damaged())
        }
    }

    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Refused>,
    ) -> Result<Vec<T>, Refused> {
        let count = self.word()? as usize;
        if count > self.data.len() / 4 {
            return Err(damaged());
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn attempt(&mut self, program: &Program) -> Result<Attempt, Refused> {
        let (start, candidate) = (self.row()?, self.word()?);
        let threads = self.list(|r| {
            Ok(Thread {
                item: r.below(program.items.len())?,
                node: r.word()?,
            })
        })?;
        let nodes = self.nodes(program)?;
        let known = |node: u32| node == NONE || (node as usize) < nodes.len();
        if !known(candidate) || !threads.iter().all(|thread| known(thread.node)) {
            return Err(damaged());
        }
        Ok(Attempt {
            start,
            threads,
            candidate,
            nodes,
        })
    }

    fn nodes(&mut self, program: &Program) -> Result<Nodes, Refused> {
        let count = self.word()? as usize;
        if count > self.data.len() / 12 {
            return Err(damaged());
        }
        let mut nodes = Nodes::default();
        for node in 0..count {
            nodes.rows.push(self.row()?);
            nodes.vars.push(self.below(program.variables.len())?);
            nodes.parents.push(self.maybe(node)?);
            for slot in &program.slots[..program.running] {
                let value = [self.long()?, self.long()?];
                let end = if slot.holds_row() {
                    i64::from(self.rows)
                } else if slot.holds_node() {
                    count as i64
                } else {
                    i64::MAX
                };
                if (slot.holds_row() || slot.holds_node()) && !(-1..end).contains(&value[0]) {
                    return Err(damaged());
                }
                nodes.held.push(value);
            }
        }
        Ok(nodes)
    }
}
