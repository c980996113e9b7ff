//! One key: its rows in order through the attempts, and what that tells.
//!
//! There are two ways to the same result. When conditions look back at what was matched, attempts are run as they are: one
//! after the other, or beside each other if every row may start a match. When they do not, `starts` finds out for all starts
//! at once where they end, in time linear in the rows, and an attempt is run only to say what a match took.

use super::Refused;
use super::attempt::{Attempt, Feeder, Nodes, Rows, TooMany};
use super::output::{Output, Told};
use super::program::{NONE, Program, Skip};
use super::progress::{Decided, Progress};
use super::starts::Starts;
use super::value::Failure;

pub struct Matcher<'a> {
    program: &'a Program,
    feeder: Feeder<'a>,
    starts: Starts<'a>,
    /// Used again for every attempt that is over at once.
    spare: Option<Attempt>,
    pub output: Output,
}

/// How an attempt stands after some rows.
enum Standing {
    Open,
    Over,
}

impl<'a> Matcher<'a> {
    pub fn new(program: &'a Program, rows: usize) -> Matcher<'a> {
        Matcher {
            program,
            feeder: Feeder::new(program),
            starts: Starts::new(program),
            spare: None,
            output: Output::new(program, rows),
        }
    }

    /// Give the rows from `fed` on to the attempts of a key, and let time run out up to the watermark.
    pub fn run(
        &mut self,
        progress: &mut Progress,
        rows: &mut Rows<'_>,
        fed: u32,
        watermark: i64,
    ) -> Result<(), Refused> {
        if self.program.free_of_history {
            self.all_starts(progress, rows, fed, watermark)?;
        } else if self.program.skip == Skip::ToNextRow {
            self.beside_each_other(progress, rows, fed, watermark)?;
        } else {
            self.one_after_the_other(progress, rows, fed, watermark)?;
        }
        if self.program.partials {
            self.tell_partials(progress, rows, fed)?;
        }
        Ok(())
    }

    fn too_many(&self) -> Refused {
        Refused::TooMany {
            limit: self.program.limit,
            row: NONE,
        }
    }

    /// A row that a condition failed on has one letter, in however many ways it did. It stays a row for all other ways.
    fn failed(&mut self, rows: &mut Rows<'_>, row: u32, why: Failure) {
        if !std::mem::replace(&mut rows.failed[row as usize], true) {
            self.output.dead(rows.index(row) as u32, why);
        }
    }

    /// A row to an attempt.
    fn feed(
        &mut self,
        attempt: &mut Attempt,
        rows: &mut Rows<'_>,
        row: u32,
    ) -> Result<(), Refused> {
        match self.feeder.feed(attempt, rows, row) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                self.failed(rows, row, why);
                Ok(())
            }
            Err(TooMany) => Err(self.too_many()),
        }
    }

    /// The rows from `from` on, as long as the attempt wants any.
    fn feed_all(
        &mut self,
        attempt: &mut Attempt,
        rows: &mut Rows<'_>,
        from: u32,
        watermark: i64,
    ) -> Result<Standing, Refused> {
        let deadline = attempt.deadline(self.program, rows);
        for row in from..rows.len() {
            if deadline.is_some_and(|deadline| rows.time(row) > deadline) {
                return Ok(Standing::Over);
            }
            self.feed(attempt, rows, row)?;
            if attempt.threads.is_empty() {
                return Ok(Standing::Over);
            }
        }
        Ok(match deadline {
            Some(deadline) if deadline <= watermark => Standing::Over,
            _ => Standing::Open,
        })
    }

    /// Every start waits until the one before it is decided: a match says where the next may start.
    fn one_after_the_other(
        &mut self,
        progress: &mut Progress,
        rows: &mut Rows<'_>,
        fed: u32,
        watermark: i64,
    ) -> Result<(), Refused> {
        let (mut start, mut from) = (fed, fed);
        let mut attempt = match progress.attempts.pop() {
            Some(open) => {
                start = open.start;
                open
            }
            None => self.fresh(start),
        };
        while start < rows.len() {
            if let Standing::Open = self.feed_all(&mut attempt, rows, from, watermark)? {
                progress.attempts.push(attempt);
                return Ok(());
            }
            start = self.tell_over(&attempt, rows, &mut progress.number);
            from = start;
            attempt.reset(self.program, start);
        }
        self.spare = Some(attempt);
        Ok(())
    }

    /// An attempt that begins at a row.
    fn fresh(&mut self, start: u32) -> Attempt {
        match self.spare.take() {
            Some(mut attempt) => {
                attempt.reset(self.program, start);
                attempt
            }
            None => Attempt::new(self.program, start),
        }
    }

    /// Every row starts an attempt, whatever becomes of the others.
    fn beside_each_other(
        &mut self,
        progress: &mut Progress,
        rows: &mut Rows<'_>,
        fed: u32,
        watermark: i64,
    ) -> Result<(), Refused> {
        let program = self.program;
        let mut open = std::mem::take(&mut progress.attempts);
        for row in fed..rows.len() {
            self.expire(&mut open, rows, rows.time(row), &mut progress.number);
            for attempt in &mut open {
                self.feed(attempt, rows, row)?;
            }
            let mut new = self.fresh(row);
            self.feed(&mut new, rows, row)?;
            if new.threads.is_empty() && new.candidate == NONE {
                self.spare = Some(new);
            } else {
                open.push(new);
            }
            for attempt in open.extract_if(.., |attempt| attempt.threads.is_empty()) {
                self.tell_over(&attempt, rows, &mut progress.number);
            }
            if open
                .iter()
                .map(|attempt| attempt.threads.len())
                .sum::<usize>()
                > program.limit
            {
                return Err(self.too_many());
            }
        }
        self.expire(
            &mut open,
            rows,
            watermark.saturating_add(1),
            &mut progress.number,
        );
        progress.attempts = open;
        Ok(())
    }

    /// Attempts whose time ran out before `now`.
    fn expire(&mut self, open: &mut Vec<Attempt>, rows: &Rows<'_>, now: i64, number: &mut i64) {
        let is_over = |attempt: &Attempt| {
            let deadline = attempt.deadline(self.program, rows);
            deadline.is_some_and(|deadline| deadline < now)
        };
        let over = open.iter().take_while(|attempt| is_over(attempt)).count();
        for attempt in open.drain(..over) {
            self.tell_over(&attempt, rows, number);
        }
    }

    /// Say what became of an attempt that is over; where the next may start.
    fn tell_over(&mut self, attempt: &Attempt, rows: &Rows<'_>, number: &mut i64) -> u32 {
        let Some((node, absent)) = attempt.at_deadline(self.program) else {
            if let (Some(best), true) = (attempt.threads.first(), self.program.timeouts) {
                let end = attempt.deadline(self.program, rows).unwrap_or_default();
                self.tell(attempt, rows, best.node, Told::Timeout, end, *number + 1);
            }
            return attempt.start + 1;
        };
        let last = attempt.nodes.rows[node as usize];
        let end = match attempt.deadline(self.program, rows) {
            Some(deadline) if absent => deadline,
            _ => rows.time(last),
        };
        *number += 1;
        self.tell(attempt, rows, node, Told::Match, end, *number);
        self.next_start(attempt, node)
    }

    fn tell(
        &mut self,
        attempt: &Attempt,
        rows: &Rows<'_>,
        node: u32,
        told: Told,
        end: i64,
        number: i64,
    ) {
        self.output
            .tell(self.program, rows, &attempt.nodes, node, told, end, number);
    }

    /// Where a match may start after this one; always after its first row.
    fn next_start(&self, attempt: &Attempt, node: u32) -> u32 {
        let past = attempt.nodes.rows[node as usize] + 1;
        let wanted = match self.program.skip {
            Skip::PastLastRow => Some(past),
            Skip::ToNextRow => Some(attempt.start + 1),
            Skip::ToFirst(var) => rows_of(&attempt.nodes, node, var).last(),
            Skip::ToLast(var) => rows_of(&attempt.nodes, node, var).next(),
        };
        wanted.unwrap_or(past).max(attempt.start + 1)
    }

    /// All starts at once, for conditions that do not look at what was matched.
    fn all_starts(
        &mut self,
        progress: &mut Progress,
        rows: &mut Rows<'_>,
        fed: u32,
        watermark: i64,
    ) -> Result<(), Refused> {
        for row in fed..rows.len() {
            self.starts.expire(progress, rows, rows.time(row));
            if !progress.decided.is_empty() {
                self.tell_decided(progress, rows)?;
            }
            match self.starts.row(progress, rows, row) {
                Ok(None) => {}
                Ok(Some(why)) => self.failed(rows, row, why),
                Err(TooMany) => return Err(self.too_many()),
            }
            if !progress.decided.is_empty() {
                self.tell_decided(progress, rows)?;
            }
        }
        self.starts
            .expire(progress, rows, watermark.saturating_add(1));
        self.tell_decided(progress, rows)
    }

    /// What is decided and need not wait for an earlier start.
    fn tell_decided(
        &mut self,
        progress: &mut Progress,
        rows: &mut Rows<'_>,
    ) -> Result<(), Refused> {
        let in_order = self.program.skip != Skip::ToNextRow;
        while let Some((&start, &decided)) = progress.decided.first_key_value() {
            if in_order && progress.first_open().is_some_and(|open| open < start) {
                break;
            }
            progress.decided.remove(&start);
            let next = self.tell_start(start, decided, rows, &mut progress.number)?;
            if in_order && next > start + 1 {
                progress.decided = progress.decided.split_off(&next);
                self.starts.drop_before(progress, next);
            }
        }
        Ok(())
    }

    /// Run the attempt of a start whose end is known, and tell it.
    fn tell_start(
        &mut self,
        start: u32,
        decided: Decided,
        rows: &mut Rows<'_>,
        number: &mut i64,
    ) -> Result<u32, Refused> {
        let mut attempt = self.fresh(start);
        self.run_again(&mut attempt, start, decided.end, rows)?;
        if decided.end != NONE {
            attempt.threads.clear();
        }
        let next = self.tell_over(&attempt, rows, number);
        self.spare = Some(attempt);
        Ok(next)
    }

    /// An attempt from `start` to the row `end`, NONE for all that its time and the rows allow.
    fn run_again(
        &mut self,
        attempt: &mut Attempt,
        start: u32,
        end: u32,
        rows: &mut Rows<'_>,
    ) -> Result<(), Refused> {
        attempt.reset(self.program, start);
        let deadline = attempt.deadline(self.program, rows);
        for row in start..rows.len().min(end.saturating_add(1)) {
            if deadline.is_some_and(|deadline| rows.time(row) > deadline) {
                break;
            }
            self.feed(attempt, rows, row)?;
        }
        Ok(())
    }

    /// Attempts that are open and took one of the rows from `fed` on.
    fn tell_partials(
        &mut self,
        progress: &mut Progress,
        rows: &mut Rows<'_>,
        fed: u32,
    ) -> Result<(), Refused> {
        let number = progress.number + 1;
        let attempts = std::mem::take(&mut progress.attempts);
        for attempt in &attempts {
            self.tell_partial(attempt, rows, fed, number);
        }
        progress.attempts = attempts;
        let mut open: Vec<u32> = progress
            .groups
            .iter()
            .flat_map(|g| g.starts.iter().copied())
            .collect();
        open.sort_unstable();
        if self.program.skip != Skip::ToNextRow {
            open.truncate(1);
        }
        let mut attempt = Attempt::new(self.program, 0);
        for start in open {
            self.run_again(&mut attempt, start, NONE, rows)?;
            self.tell_partial(&attempt, rows, fed, number);
        }
        Ok(())
    }

    fn tell_partial(&mut self, attempt: &Attempt, rows: &Rows<'_>, fed: u32, number: i64) {
        let Some(best) = attempt.threads.first().filter(|best| best.node != NONE) else {
            return;
        };
        let last = attempt.nodes.rows[best.node as usize];
        if last >= fed {
            self.tell(
                attempt,
                rows,
                best.node,
                Told::Partial,
                rows.time(last),
                number,
            );
        }
    }
}

/// The rows that a match took for a variable, the last first.
fn rows_of(nodes: &Nodes, node: u32, var: u32) -> impl Iterator<Item = u32> {
    let up = move |&at: &u32| Some(nodes.parents[at as usize]).filter(|&at| at != NONE);
    std::iter::successors(Some(node).filter(|&at| at != NONE), up)
        .filter(move |&at| nodes.vars[at as usize] == var)
        .map(|at| nodes.rows[at as usize])
}
