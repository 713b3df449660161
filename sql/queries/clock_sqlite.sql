-- name: store_clock
SELECT unixepoch('subsec');
