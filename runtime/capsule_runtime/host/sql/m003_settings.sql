-- What a context was made with, as its harness sees it. Derived from the log, which says nothing of
-- it for contexts of before: their next run does.
alter table contexts add column tier text;
alter table contexts add column home text;
alter table contexts add column workdir text;
