"""What the gateway decides: no I/O, no clock, no await. Keys and bytes are others' business.

A request goes through it in this order: `routes` (is there such a way?), `json_text` and `asked`
(what does it ask for?), `bounds` (what can it cost at most?), `reservations` (is there room?),
`edits` (what is changed in it?). The answer goes through `settling`. What may not pass is answered
with `refusals`.
"""
