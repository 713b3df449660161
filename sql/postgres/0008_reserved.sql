-- A number that is taken by another schema change.
SELECT 1;
