-- What runs hold, or in the end used, of the ceilings of a UTC day. Beside the log: only runs under
-- such a ceiling have rows. A run that goes on past midnight has one a day.
create table reservations (
    day text not null,
    run text not null,
    owner text not null,
    microusd integer not null,
    tokens integer not null,
    state text not null check (state in ('held', 'settled')),
    primary key (day, run)
);

create index reservations_by_run on reservations (run);
