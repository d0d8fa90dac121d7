-- Named queries of the store. Parameters are named like the columns they meet.

-- name: insert_rows
-- The values of as many rows as are to be inserted follow.
insert into log (run, seq, last, body, hash);

-- name: log_end
select last, hash from log where run = :no order by seq desc limit 1;

-- name: last_entry
select last from log where run = (select no from runs where id = :run) order by seq desc limit 1;

-- name: read_rows
-- Each row comes with the row before it, whose hash its own hash covers.
select l.seq, l.last, l.body, l.hash, coalesce(p.last, 0), coalesce(p.hash, zeroblob(32))
from log l left join log p on p.rowid = (
    select rowid from log where run = l.run and seq < l.seq order by seq desc limit 1
)
where l.run = (select no from runs where id = :run)
    and l.last > :after
    and l.seq >= coalesce((
        select max(seq) from log
        where run = (select no from runs where id = :run) and seq <= :after + 1
    ), 0)
order by l.seq limit :limit;

-- name: last_row
select l.seq, l.last, l.body, l.hash, coalesce(p.last, 0), coalesce(p.hash, zeroblob(32))
from log l left join log p on p.rowid = (
    select rowid from log where run = l.run and seq < l.seq order by seq desc limit 1
)
where l.run = :no order by l.seq desc limit 1;

-- name: whole_log
select seq, last, body, hash from log where run = :no order by seq;

-- name: logged_numbers
select distinct run from log order by run;

-- name: run_number
select no from runs where id = :run;

-- name: insert_run
insert into runs
    (no, id, context, capsule, task, state, outcome, reason, owner, created_at, ended_at, session)
values (:no, :id, :context, :capsule, :task, :state, :outcome, :reason, :owner, :created_at,
    :ended_at, :session);

-- name: update_run
update runs set context = :context, capsule = :capsule, task = :task, state = :state,
    outcome = :outcome, reason = :reason, owner = :owner, created_at = :created_at,
    ended_at = :ended_at, session = :session
where no = :no;

-- name: forget_runs
delete from runs;

-- name: run_by_number
select id, context, capsule, task, state, created_at, outcome, reason, owner, ended_at, session
from runs where no = :no;

-- name: runs_by_prefix
select id, context, capsule, task, state, created_at, outcome, reason, owner, ended_at, session
from runs where id >= :prefix and id < :prefix || char(1114111) order by id limit :limit;

-- name: newest_runs
select id, context, capsule, task, state, created_at, outcome, reason, owner, ended_at, session
from runs order by no desc limit :limit;

-- name: newest_live_runs
-- Any number of runs have ended; the index holds only those that have not.
select id, context, capsule, task, state, created_at, outcome, reason, owner, ended_at, session
from runs indexed by runs_by_live_context where state != 'ended' order by no desc limit :limit;

-- name: owned_live_runs
select id, context, capsule, task, state, created_at, outcome, reason, owner, ended_at, session
from runs indexed by runs_by_live_owner where state != 'ended' and owner is not null order by no;

-- name: live_runs_of_owner
select id, context, capsule, task, state, created_at, outcome, reason, owner, ended_at, session
from runs indexed by runs_by_live_owner
where owner = :owner and state != 'ended' order by no;

-- name: live_run_of_context
select id from runs where context = :context and state != 'ended';

-- name: context_by_name
select name, uuid, driver, created_at, session, memory, tier, home, workdir
from contexts where name = :name;

-- name: keep_context
insert into contexts (name, uuid, driver, session, memory, created_at, tier, home, workdir)
values (:name, :uuid, :driver, :session, :memory, :created_at, :tier, :home, :workdir)
on conflict (name) do update set
    session = coalesce(excluded.session, session), memory = coalesce(excluded.memory, memory),
    tier = coalesce(tier, excluded.tier), home = coalesce(home, excluded.home),
    workdir = coalesce(workdir, excluded.workdir);

-- name: forget_contexts
delete from contexts;

-- name: insert_request
insert into requests (run, verb, body, asked_at) values (:no, :verb, :body, :asked_at);

-- name: waiting_requests
select q.id, r.id, q.verb, q.body, q.asked_at
from runs r join requests q on q.run = r.no
where r.owner = :owner and r.state != 'ended' and q.taken_at is null order by q.id;

-- name: mark_taken
-- What was asked may hold words that the log has without their secrets.
update requests set taken_at = :taken_at, body = x'' where id = :id;

-- name: is_taken
select taken_at is not null from requests where id = :id;

-- name: known_numbers
select no from runs union select run from log order by 1;

-- name: day_taken
-- total() cannot overflow, whatever harnesses claim to have used.
select cast(min(total(microusd), 9007199254740992) as integer),
    cast(min(total(tokens), 9007199254740992) as integer)
from reservations where day = :day;

-- name: reservations_of_run
select day, microusd, tokens, state from reservations where run = :run order by day;

-- name: reserve
insert into reservations (day, run, owner, microusd, tokens, state)
values (:day, :run, :owner, :microusd, :tokens, 'held')
on conflict (day, run) do update set
    owner = excluded.owner, microusd = excluded.microusd, tokens = excluded.tokens, state = 'held';

-- name: settle
-- What was used counts for the day for which it was reserved; other days have had their part.
update reservations set state = 'settled',
    microusd = max(0, :microusd - (
        select cast(min(total(microusd), 9007199254740992) as integer)
        from reservations o where o.run = :run and o.state = 'settled')),
    tokens = max(0, :tokens - (
        select cast(min(total(tokens), 9007199254740992) as integer)
        from reservations o where o.run = :run and o.state = 'settled'))
where run = :run and state = 'held';
