-- A row of the log is a block of consecutive entries of one run, one JSON object a line.
-- An ordinary rowid table: the bodies of all runs share pages, so a group commit writes few of them.
create table log (
    run integer not null,
    seq integer not null,
    last integer not null,
    body blob not null,
    hash blob not null,
    unique (run, seq)
);

-- Derived from the log. A number is never given twice: entries and requests refer to it.
create table runs (
    no integer primary key autoincrement,
    id text not null unique,
    context text not null,
    capsule text not null,
    task text not null,
    state text not null,
    outcome text,
    reason text,
    owner text,
    created_at text not null,
    ended_at text,
    session text
);

-- One run at a time lives or is parked in a context.
create unique index runs_by_live_context on runs (context) where state != 'ended';
create index runs_by_live_owner on runs (owner) where state != 'ended';

-- Derived from the log.
create table contexts (
    name text primary key,
    uuid text not null unique,
    driver text not null,
    session text,
    memory blob,
    created_at text not null
);

create table requests (
    id integer primary key,
    run integer not null,
    verb text not null,
    body blob not null,
    asked_at text not null,
    taken_at text
);

create index requests_waiting on requests (run) where taken_at is null;
