-- name: store_clock
SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8);
