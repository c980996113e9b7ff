//! All starts of a key at once, for patterns whose conditions do not look at what was matched.
//!
//! What becomes of a start then depends only on the items that its threads are at. Starts at the same items are one group:
//! a row is given to each group, not to each start. Groups come together and never part, so a row costs as much as there
//! are different stages of the pattern, however many starts are open. Only time runs out for each start by itself.

use super::attempt::{Nodes, Rows, TooMany, holds};
use super::output::Told;
use super::program::{Item, NONE, Program, Take};
use super::progress::{Decided, Group, Progress};
use super::value::Failure;

/// What became of a row that a group might take.
enum Took {
    Not,
    /// A condition has no answer: the group does not go on there.
    Failed,
    Taken,
    /// That completes a match.
    Complete,
}

pub struct Starts<'a> {
    program: &'a Program,
    /// The items of all groups after a row, one group after the other, and where each ends.
    items: Vec<u32>,
    ends: Vec<(usize, bool)>,
    seen: Vec<u64>,
    round: u64,
    failed: Option<Failure>,
    nothing: Nodes,
    first: Vec<u32>,
}

impl<'a> Starts<'a> {
    pub fn new(program: &'a Program) -> Starts<'a> {
        Starts {
            program,
            items: Vec::new(),
            ends: Vec::new(),
            seen: vec![0; program.items.len()],
            round: 0,
            failed: None,
            nothing: Nodes::default(),
            first: program.items_of(0).collect(),
        }
    }

    /// Give a row to all groups, and let it start one. Where a condition fails on it a group does not go on; why it did.
    pub fn row(
        &mut self,
        progress: &mut Progress,
        rows: &Rows<'_>,
        row: u32,
    ) -> Result<Option<Failure>, TooMany> {
        self.items.clear();
        self.ends.clear();
        self.failed = None;
        let first = std::mem::take(&mut self.first);
        let groups = progress.groups.iter().map(|group| group.items.as_slice());
        for items in groups.chain([first.as_slice()]) {
            let accepted = self.step(items, rows, row);
            self.ends.push((self.items.len(), accepted));
        }
        self.first = first;
        self.apply(progress, row);
        if self.items.len() > self.program.limit {
            return Err(TooMany);
        }
        Ok(self.failed)
    }

    /// The next items of one group; whether a match is complete.
    fn step(&mut self, items: &[u32], rows: &Rows<'_>, row: u32) -> bool {
        self.round += 1;
        let program = self.program;
        for &item in items {
            match &program.items[item as usize] {
                Item::Take(take) => {
                    if let Took::Complete = self.take(*take, rows, row) {
                        return true;
                    }
                }
                Item::Wait { takes, forbidden } => {
                    let mut waits = true;
                    for take in takes {
                        match self.take(*take, rows, row) {
                            Took::Complete => return true,
                            Took::Taken | Took::Failed => waits = false,
                            Took::Not => {}
                        }
                    }
                    if waits && !self.ends(forbidden, rows, row) {
                        self.push(item);
                    }
                }
                Item::Absent(vars) => {
                    if !self.ends(vars, rows, row) {
                        self.push(item);
                    }
                }
                Item::Accept => {}
            }
        }
        false
    }

    /// Whether the row is of one of these variables, or nobody can say.
    fn ends(&mut self, vars: &[u32], rows: &Rows<'_>, row: u32) -> bool {
        for &var in vars {
            match holds(self.program, rows, &self.nothing, NONE, var, row) {
                Ok(false) => {}
                Ok(true) => return true,
                Err(why) => {
                    self.failed.get_or_insert(why);
                    return true;
                }
            }
        }
        false
    }

    #[inline]
    fn take(&mut self, take: Take, rows: &Rows<'_>, row: u32) -> Took {
        match holds(self.program, rows, &self.nothing, NONE, take.var, row) {
            Ok(true) => {}
            Ok(false) => return Took::Not,
            Err(why) => {
                self.failed.get_or_insert(why);
                return Took::Failed;
            }
        }
        for item in self.program.items_of(take.next) {
            if self.program.items[item as usize] == Item::Accept {
                return Took::Complete;
            }
            self.push(item);
        }
        Took::Taken
    }

    #[inline]
    fn push(&mut self, item: u32) {
        let seen = &mut self.seen[item as usize];
        if *seen != self.round {
            *seen = self.round;
            self.items.push(item);
        }
    }

    /// Move the groups to their next items, decide those that have none, and put together those that are alike.
    fn apply(&mut self, progress: &mut Progress, row: u32) {
        let mut from = 0;
        let new = self.ends.len() - 1;
        for (index, &(to, accepted)) in self.ends.iter().enumerate() {
            let items = &self.items[from..to];
            from = to;
            if index < new {
                let group = &mut progress.groups[index];
                group.items.clear();
                group.items.extend_from_slice(items);
                if accepted {
                    group.candidate = row;
                }
            } else if accepted || !items.is_empty() {
                let candidate = if accepted { row } else { NONE };
                join(&mut progress.groups, items, candidate, row);
            }
        }
        let Progress {
            groups, decided, ..
        } = progress;
        groups.retain(|group| {
            if !group.items.is_empty() {
                return true;
            }
            if group.candidate != NONE {
                let end = Decided {
                    end: group.candidate,
                    told: Told::Match,
                };
                decided.extend(group.starts.iter().map(|&start| (start, end)));
            }
            false
        });
        merge(groups);
    }

    /// Decide the starts whose time ran out before `now`.
    pub fn expire(&self, progress: &mut Progress, rows: &Rows<'_>, now: i64) {
        let Some(within) = self.program.within else {
            return;
        };
        let mut emptied = false;
        for group in &mut progress.groups {
            while let Some(&start) = group.starts.front() {
                if rows.time(start).saturating_add(within) >= now {
                    break;
                }
                group.starts.pop_front();
                if let Some(end) = self.at_deadline(group) {
                    progress.decided.insert(start, end);
                }
            }
            emptied |= group.starts.is_empty();
        }
        if emptied {
            progress.groups.retain(|group| !group.starts.is_empty());
        }
    }

    fn at_deadline(&self, group: &Group) -> Option<Decided> {
        let is_absence = |item: &u32| matches!(self.program.items[*item as usize], Item::Absent(_));
        let (end, told) = if group.items.iter().any(is_absence) {
            (NONE, Told::Match)
        } else if group.candidate != NONE {
            (group.candidate, Told::Match)
        } else if self.program.timeouts {
            (NONE, Told::Timeout)
        } else {
            return None;
        };
        Some(Decided { end, told })
    }

    /// A match went over these starts.
    pub fn drop_before(&self, progress: &mut Progress, next: u32) {
        for group in &mut progress.groups {
            while group.starts.front().is_some_and(|&start| start < next) {
                group.starts.pop_front();
            }
        }
        progress.groups.retain(|group| !group.starts.is_empty());
    }
}

/// A new start; it is later than all others.
fn join(groups: &mut Vec<Group>, items: &[u32], candidate: u32, start: u32) {
    let alike = |group: &&mut Group| group.candidate == candidate && group.items == items;
    match groups.iter_mut().find(alike) {
        Some(group) => group.starts.push_back(start),
        None => groups.push(Group {
            items: items.to_vec(),
            candidate,
            starts: [start].into(),
        }),
    }
}

fn merge(groups: &mut Vec<Group>) {
    if groups.len() < 2 {
        return;
    }
    groups.sort_unstable_by(|a, b| (a.candidate, &a.items).cmp(&(b.candidate, &b.items)));
    groups.dedup_by(|later, kept| {
        let alike = later.candidate == kept.candidate && later.items == kept.items;
        if alike {
            together(&mut kept.starts, &mut later.starts);
        }
        alike
    });
}

type Queue = std::collections::VecDeque<u32>;

/// Both queues, in order, in the first.
fn together(into: &mut Queue, from: &mut Queue) {
    if into.len() < from.len() {
        std::mem::swap(into, from);
    }
    if from.front() > into.back() {
        into.append(from);
    } else if into.front() > from.back() {
        from.iter().rev().for_each(|&start| into.push_front(start));
    } else {
        for &start in from.iter() {
            let at = into.partition_point(|&known| known < start);
            into.insert(at, start);
        }
    }
}
