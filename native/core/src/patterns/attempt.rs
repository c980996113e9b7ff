//! An attempt to match the pattern from one row on: its threads in the order of preference, and what each has taken.
//!
//! What threads have taken is a tree of nodes (row, variable, the node before it), so that threads share their past. A node also
//! carries the slots that conditions need (first and last rows, aggregates), so that no condition walks back.

use super::eval::{Column, Place, RowAlone, eval};
use super::program::{Item, NONE, Op, Program, Slot, SlotKind, Take};
use super::value::{Failure, Outcome, RANGE, Value};

/// The rows of one key in their order, as far as the watermark allows.
pub struct Rows<'a> {
    pub columns: &'a [Column],
    pub times: &'a [i64],
    /// For each variable whether its local condition holds for each row of the table; empty if it has none.
    pub local: &'a [Vec<bool>],
    /// Where in the table each row is.
    pub order: &'a [u32],
    /// Rows whose letter is written: a condition failed on them in some way to match.
    pub failed: Vec<bool>,
}

impl<'a> Rows<'a> {
    #[inline]
    pub fn len(&self) -> u32 {
        self.order.len() as u32
    }

    #[inline]
    pub fn index(&self, row: u32) -> usize {
        self.order[row as usize] as usize
    }

    #[inline]
    pub fn time(&self, row: u32) -> i64 {
        self.times[self.index(row)]
    }

    #[inline]
    fn value(&self, column: u32, row: u32) -> Value<'a> {
        self.columns[column as usize].value(self.index(row))
    }

    #[inline]
    fn alone(&self, row: u32) -> RowAlone<'a> {
        RowAlone {
            columns: self.columns,
            row: self.index(row),
        }
    }
}

/// What a slot holds: a row, a node, a count, or a sum and how many it is of.
pub type Held = [i64; 2];

fn nothing(slot: &Slot) -> Held {
    match slot.kind {
        SlotKind::First | SlotKind::Last | SlotKind::Min | SlotKind::Max => [-1, 0],
        _ => [0, 0],
    }
}

/// Take a row into a slot; `node` is the row's node.
#[inline]
fn add(
    program: &Program,
    rows: &Rows<'_>,
    slot: &Slot,
    held: &mut Held,
    row: u32,
    node: u32,
) -> Result<(), Failure> {
    match slot.kind {
        SlotKind::First if held[0] < 0 => held[0] = row.into(),
        SlotKind::First => {}
        SlotKind::Last => held[0] = node.into(),
        SlotKind::Count if slot.code == NONE => held[0] += 1,
        kind => {
            let value = eval(program, slot.code, &rows.alone(row))?;
            if value != Value::Null {
                add_value(program, rows, slot.code, kind, held, value, row)?;
            }
        }
    }
    Ok(())
}

fn add_value(
    program: &Program,
    rows: &Rows<'_>,
    code: u32,
    kind: SlotKind,
    held: &mut Held,
    value: Value<'_>,
    row: u32,
) -> Result<(), Failure> {
    match (kind, value) {
        (SlotKind::Count, _) => held[0] += 1,
        (SlotKind::SumInt, Value::Int(value)) => {
            *held = [held[0].checked_add(value).ok_or(RANGE)?, held[1] + 1];
        }
        (SlotKind::SumFloat | SlotKind::Average, Value::Int(value)) => {
            add_float(held, value as f64)
        }
        (SlotKind::SumFloat | SlotKind::Average, Value::Float(value)) => add_float(held, value),
        (SlotKind::Min | SlotKind::Max, _) => {
            let known = u32::try_from(held[0]).ok();
            let better = match known {
                None => true,
                Some(known) => {
                    let order = value.order(eval(program, code, &rows.alone(known))?)?;
                    (kind == SlotKind::Min && order.is_lt())
                        || (kind == SlotKind::Max && order.is_gt())
                }
            };
            if better {
                held[0] = row.into();
            }
        }
        _ => return Err("an aggregate over values that cannot be added"),
    }
    Ok(())
}

#[inline]
fn add_float(held: &mut Held, value: f64) {
    let sum = f64::from_bits(held[0] as u64) + value;
    *held = [sum.to_bits() as i64, held[1] + 1];
}

/// What an aggregate's slot says.
#[inline]
fn total<'a>(program: &'a Program, rows: &Rows<'a>, slot: &Slot, held: Held) -> Outcome<'a> {
    let sum = || f64::from_bits(held[0] as u64);
    Ok(match slot.kind {
        SlotKind::Count => Value::Int(held[0]),
        SlotKind::Min | SlotKind::Max => match u32::try_from(held[0]) {
            Ok(row) => eval(program, slot.code, &rows.alone(row))?,
            Err(_) => Value::Null,
        },
        _ if held[1] == 0 => Value::Null,
        SlotKind::SumInt => Value::Int(held[0]),
        SlotKind::SumFloat => Value::Float(sum()),
        SlotKind::Average => Value::Float(sum() / held[1] as f64),
        SlotKind::First | SlotKind::Last => Value::Null,
    })
}

/// The tree of what threads have taken.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    pub rows: Vec<u32>,
    pub vars: Vec<u32>,
    pub parents: Vec<u32>,
    /// The running slots of each node, one node after the other.
    pub held: Vec<Held>,
}

impl Nodes {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    fn cut(&mut self, length: usize, running: usize) {
        self.rows.truncate(length);
        self.vars.truncate(length);
        self.parents.truncate(length);
        self.held.truncate(length * running);
    }

    /// The nodes from the first row on.
    pub fn chain(&self, node: u32) -> Vec<u32> {
        let mut chain = Vec::new();
        let mut at = node;
        while at != NONE {
            chain.push(at);
            at = self.parents[at as usize];
        }
        chain.reverse();
        chain
    }

    fn push(
        &mut self,
        program: &Program,
        rows: &Rows<'_>,
        row: u32,
        var: u32,
        parent: u32,
    ) -> Result<u32, Failure> {
        let node = self.rows.len() as u32;
        for (index, slot) in program.slots[..program.running].iter().enumerate() {
            let mut held = match parent {
                NONE => nothing(slot),
                _ => self.held[parent as usize * program.running + index],
            };
            if slot.counts(var)
                && let Err(why) = add(program, rows, slot, &mut held, row, node)
            {
                self.held.truncate(node as usize * program.running);
                return Err(why);
            }
            self.held.push(held);
        }
        self.rows.push(row);
        self.vars.push(var);
        self.parents.push(parent);
        Ok(node)
    }
}

/// What a code sees: the past of a thread, and the row that it may take for a variable.
struct Past<'a, 'n> {
    program: &'a Program,
    rows: &'n Rows<'a>,
    nodes: &'n Nodes,
    /// The slots of the thread's last node; none if it has taken nothing.
    held: &'n [Held],
    /// The row that is looked at and the variable it may be taken for; NONE when a match is complete.
    row: u32,
    var: u32,
    number: i64,
    classifier: Value<'a>,
}

impl<'a> Past<'a, '_> {
    #[inline]
    fn held(&self, slot: u32) -> Held {
        match self.held.get(slot as usize) {
            Some(held) => *held,
            None => nothing(&self.program.slots[slot as usize]),
        }
    }

    #[inline]
    fn counts_this(&self, slot: u32) -> bool {
        self.row != NONE && self.program.slots[slot as usize].counts(self.var)
    }

    #[inline]
    fn first_row(&self, slot: u32) -> Option<u32> {
        match u32::try_from(self.held(slot)[0]) {
            Ok(row) => Some(row),
            Err(_) if self.counts_this(slot) => Some(self.row),
            Err(_) => None,
        }
    }

    #[inline]
    fn last_row(&self, slot: u32, mut back: u32) -> Option<u32> {
        if self.counts_this(slot) {
            if back == 0 {
                return Some(self.row);
            }
            back -= 1;
        }
        let mut node = u32::try_from(self.held(slot)[0]).ok()?;
        let slot = self.program.slots[slot as usize];
        while back > 0 {
            node = self.nodes.parents[node as usize];
            if node == NONE {
                return None;
            }
            if slot.counts(self.nodes.vars[node as usize]) {
                back -= 1;
            }
        }
        Some(self.nodes.rows[node as usize])
    }
}

impl<'a> Place<'a> for Past<'a, '_> {
    #[inline]
    fn column(&self, column: u32) -> Value<'a> {
        match self.row {
            NONE => Value::Null,
            row => self.rows.value(column, row),
        }
    }

    fn prev(&self, column: u32, back: u32) -> Value<'a> {
        if self.row == NONE {
            return Value::Null;
        }
        match self.row.checked_sub(back) {
            Some(row) => self.rows.value(column, row),
            None => Value::Null,
        }
    }

    #[inline]
    fn first(&self, column: u32, slot: u32) -> Value<'a> {
        match self.first_row(slot) {
            Some(row) => self.rows.value(column, row),
            None => Value::Null,
        }
    }

    #[inline]
    fn last(&self, column: u32, slot: u32, back: u32) -> Value<'a> {
        match self.last_row(slot, back) {
            Some(row) => self.rows.value(column, row),
            None => Value::Null,
        }
    }

    fn row_of(&self, slot: u32, back: u32) -> Value<'a> {
        let row = match self.program.slots[slot as usize].kind {
            SlotKind::Last => self.last_row(slot, back),
            _ => self.first_row(slot),
        };
        row.map_or(Value::Null, |row| Value::Int(self.rows.index(row) as i64))
    }

    #[inline]
    fn aggregate(&self, slot: u32) -> Outcome<'a> {
        let known = &self.program.slots[slot as usize];
        let mut held = self.held(slot);
        if self.counts_this(slot) {
            add(self.program, self.rows, known, &mut held, self.row, NONE)?;
        }
        total(self.program, self.rows, known, held)
    }

    fn match_number(&self) -> Value<'a> {
        Value::Int(self.number)
    }

    fn classifier(&self) -> Value<'a> {
        self.classifier
    }
}

/// One way that the pattern may still match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Which item it is at.
    pub item: u32,
    /// What it has taken, NONE if nothing.
    pub node: u32,
}

/// From one row on.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub start: u32,
    pub threads: Vec<Thread>,
    /// The end of the best match so far; threads that are left would be better.
    pub candidate: u32,
    pub nodes: Nodes,
}

impl Attempt {
    pub fn new(program: &Program, start: u32) -> Attempt {
        let mut attempt = Attempt {
            start,
            threads: Vec::new(),
            candidate: NONE,
            nodes: Nodes::default(),
        };
        attempt.reset(program, start);
        attempt
    }

    /// Begin again, from another row.
    pub fn reset(&mut self, program: &Program, start: u32) {
        self.start = start;
        self.candidate = NONE;
        self.threads.clear();
        self.threads
            .extend(program.items_of(0).map(|item| Thread { item, node: NONE }));
        self.nodes.cut(0, 0);
    }

    /// When its time runs out.
    pub fn deadline(&self, program: &Program, rows: &Rows<'_>) -> Option<i64> {
        program
            .within
            .map(|within| rows.time(self.start).saturating_add(within))
    }

    /// The end of the match when no more rows count; is it one because something was absent?
    pub fn at_deadline(&self, program: &Program) -> Option<(u32, bool)> {
        let absent =
            |thread: &&Thread| matches!(program.items[thread.item as usize], Item::Absent(_));
        match self.threads.iter().find(absent) {
            Some(thread) => Some((thread.node, true)),
            None if self.candidate != NONE => Some((self.candidate, false)),
            None => None,
        }
    }
}

/// An attempt has more threads than the limit.
pub struct TooMany;

/// What became of a row that a thread might take.
enum Took {
    Not,
    /// A condition, or an aggregate that takes the row in, has no answer: the thread is over.
    Failed,
    Taken,
    /// That completes a match, which ends at this node.
    Complete(u32),
}

/// Whether a row may be taken for a variable after what a thread has taken.
#[inline]
pub fn holds(
    program: &Program,
    rows: &Rows<'_>,
    nodes: &Nodes,
    node: u32,
    var: u32,
    row: u32,
) -> Result<bool, Failure> {
    let local = &rows.local[var as usize];
    if !local.is_empty() && !local[rows.index(row)] {
        return Ok(false);
    }
    let code = program.variables[var as usize].history;
    if code == NONE {
        return Ok(true);
    }
    let held = match node {
        NONE => &[],
        _ => &nodes.held[node as usize * program.running..(node as usize + 1) * program.running],
    };
    let past = Past {
        program,
        rows,
        nodes,
        held,
        row,
        var,
        number: 0,
        classifier: Value::Null,
    };
    Ok(eval(program, code, &past)?.is_true())
}

/// Gives rows to attempts; holds the memory that this takes.
pub struct Feeder<'a> {
    program: &'a Program,
    next: Vec<Thread>,
    /// When each item was last put among the next threads.
    seen: Vec<u64>,
    round: u64,
    /// Why the first of the threads that failed on the last row did so.
    failed: Option<Failure>,
}

impl<'a> Feeder<'a> {
    pub fn new(program: &'a Program) -> Feeder<'a> {
        Feeder {
            program,
            next: Vec::new(),
            seen: vec![0; program.items.len()],
            round: 0,
            failed: None,
        }
    }

    /// Give a row to all threads of an attempt. A thread that a condition fails in is over; why the first did so.
    pub fn feed(
        &mut self,
        attempt: &mut Attempt,
        rows: &Rows<'_>,
        row: u32,
    ) -> Result<Option<Failure>, TooMany> {
        self.next.clear();
        self.round += 1;
        self.failed = None;
        let found = self.step(attempt, rows, row);
        std::mem::swap(&mut attempt.threads, &mut self.next);
        attempt.candidate = found.unwrap_or(attempt.candidate);
        if attempt.threads.len() > self.program.limit {
            return Err(TooMany);
        }
        Ok(self.failed)
    }

    /// The end of a match, if one is complete: threads that come after it are not wanted any more.
    fn step(&mut self, attempt: &mut Attempt, rows: &Rows<'_>, row: u32) -> Option<u32> {
        let program = self.program;
        for index in 0..attempt.threads.len() {
            let thread = attempt.threads[index];
            match &program.items[thread.item as usize] {
                Item::Take(take) => {
                    if let Took::Complete(node) =
                        self.take(*take, &mut attempt.nodes, rows, row, thread.node)
                    {
                        return Some(node);
                    }
                }
                Item::Wait { takes, forbidden } => {
                    let mut waits = true;
                    for take in takes {
                        match self.take(*take, &mut attempt.nodes, rows, row, thread.node) {
                            Took::Complete(node) => return Some(node),
                            Took::Taken | Took::Failed => waits = false,
                            Took::Not => {}
                        }
                    }
                    if waits && !self.ends(forbidden, &attempt.nodes, rows, row, thread.node) {
                        self.push(thread);
                    }
                }
                Item::Absent(vars) => {
                    if !self.ends(vars, &attempt.nodes, rows, row, thread.node) {
                        self.push(thread);
                    }
                }
                Item::Accept => {}
            }
        }
        None
    }

    /// Whether a row that must not come ends a thread: it is of one of these variables, or nobody can say.
    fn ends(&mut self, vars: &[u32], nodes: &Nodes, rows: &Rows<'_>, row: u32, node: u32) -> bool {
        for &var in vars {
            match holds(self.program, rows, nodes, node, var, row) {
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
    fn take(
        &mut self,
        take: Take,
        nodes: &mut Nodes,
        rows: &Rows<'_>,
        row: u32,
        parent: u32,
    ) -> Took {
        let program = self.program;
        let node = match holds(program, rows, nodes, parent, take.var, row) {
            Ok(false) => return Took::Not,
            Ok(true) => nodes.push(program, rows, row, take.var, parent),
            Err(why) => Err(why),
        };
        let node = match node {
            Ok(node) => node,
            Err(why) => {
                self.failed.get_or_insert(why);
                return Took::Failed;
            }
        };
        for item in program.items_of(take.next) {
            if program.items[item as usize] == Item::Accept {
                return Took::Complete(node);
            }
            self.push(Thread { item, node });
        }
        Took::Taken
    }

    /// Of threads at one item the first is enough, unless what they have taken makes a difference.
    #[inline]
    fn push(&mut self, thread: Thread) {
        if self.program.free_of_history {
            let seen = &mut self.seen[thread.item as usize];
            if *seen == self.round {
                return;
            }
            *seen = self.round;
        }
        self.next.push(thread);
    }
}

/// The measures of what was taken up to a node; those that fail say why.
pub fn measure<'a>(
    program: &'a Program,
    rows: &Rows<'a>,
    nodes: &Nodes,
    chain: &[u32],
    number: i64,
    mut tell: impl FnMut(usize, Outcome<'a>),
) {
    if program.measures.is_empty() {
        return;
    }
    let mut held: Vec<Held> = program.slots.iter().map(nothing).collect();
    let mut failed: Vec<Option<Failure>> = vec![None; program.slots.len()];
    for &node in chain {
        let (row, var) = (nodes.rows[node as usize], nodes.vars[node as usize]);
        for ((slot, held), failed) in program.slots.iter().zip(&mut held).zip(&mut failed) {
            if slot.counts(var) && failed.is_none() {
                *failed = add(program, rows, slot, held, row, node).err();
            }
        }
    }
    let last = chain.last().map(|&node| nodes.vars[node as usize]);
    let classifier = last.map_or(Value::Null, |var| {
        Value::Text(program.text(program.variables[var as usize].name))
    });
    let past = Past {
        program,
        rows,
        nodes,
        held: &held,
        row: NONE,
        var: NONE,
        number,
        classifier,
    };
    for (index, measure) in program.measures.iter().enumerate() {
        let code = &program.codes[measure.code as usize];
        let missing = code.iter().find_map(|op| match op {
            Op::Aggregate(slot) | Op::RowOf { slot, .. } => failed[*slot as usize],
            _ => None,
        });
        tell(
            index,
            match missing {
                Some(why) => Err(why),
                None => eval(program, measure.code, &past),
            },
        );
    }
}
