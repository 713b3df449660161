"""Functions of SQL that only compute: they change nothing, read no file, run nothing. Pure, no I/O.

Every other function makes a statement more than a SELECT: it may be anybody's, and do anything. The tests hold the
names against what PostgreSQL and SQLite say of their own functions.
"""

from __future__ import annotations

from typing import Final


def _names(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_COMMON: Final = _names(
    "abs acos asin atan atan2 avg ceil ceiling coalesce concat concat_ws cos cot count cume_dist current_date",
    "current_time current_timestamp degrees dense_rank exp first_value floor lag last_value lead length ln log",
    "log10 lower ltrim max min mod nth_value ntile nullif percent_rank pi power radians rank replace round",
    "row_number rtrim sign sin sqrt substr substring sum tan trim upper",
)
_POSTGRES: Final = _names(
    "acosh age any_value array array_agg array_append array_cat array_dims array_fill array_length array_lower",
    "array_ndims array_position array_positions array_prepend array_remove array_replace array_to_json",
    "array_to_string array_upper ascii asinh atanh bit_and bit_count bit_length bit_or bit_xor bool_and bool_or",
    "btrim cardinality cbrt char_length character_length chr clock_timestamp col_description convert_from",
    "convert_to corr cosh covar_pop covar_samp current_catalog current_database current_role current_schema",
    "current_user date_bin date_part date_trunc daterange decode div encode erf every extract factorial family",
    "format format_type gcd gen_random_uuid generate_series generate_subscripts get_bit get_byte greatest grouping",
    "has_column_privilege has_schema_privilege has_table_privilege height host hostmask inet_same_family initcap",
    "int4range int8range isempty isfinite json_agg json_array_elements json_array_elements_text json_array_length",
    "json_build_array json_build_object json_each json_each_text json_extract_path json_extract_path_text",
    "json_object json_object_agg json_object_keys json_strip_nulls json_typeof jsonb_agg jsonb_array_elements",
    "jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text",
    "jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_keys",
    "jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty",
    "jsonb_set jsonb_strip_nulls jsonb_typeof justify_days justify_hours justify_interval lcm least left localtime",
    "localtimestamp lower_inc lower_inf lpad make_date make_interval make_time make_timestamp make_timestamptz",
    "masklen md5 min_scale mode multirange netmask network normalize now num_nonnulls num_nulls numeric numnode",
    "numrange obj_description octet_length overlay percentile_cont percentile_disc pg_column_size pg_database_size",
    "pg_get_constraintdef pg_get_expr pg_get_functiondef pg_get_indexdef pg_get_viewdef pg_indexes_size",
    "pg_relation_size pg_size_pretty pg_table_is_visible pg_table_size pg_total_relation_size pg_typeof",
    "phraseto_tsquery plainto_tsquery position querytree quote_ident quote_literal quote_nullable random range_agg",
    "range_merge regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace",
    "regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy regr_count regr_intercept",
    "regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat reverse right row_to_json rpad scale session_user set_bit",
    "set_byte set_masklen setweight sha224 sha256 sha384 sha512 shobj_description sinh split_part starts_with",
    "statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array string_to_table strip strpos tanh",
    "text timeofday to_ascii to_char to_date to_hex to_json to_jsonb to_number to_regclass to_regtype to_timestamp",
    "to_tsquery to_tsvector transaction_timestamp translate trim_array trim_scale trunc ts_headline ts_rank",
    "ts_rank_cd tsrange tstzrange tsvector_to_array unistr unnest upper_inc upper_inf uuidv4 uuidv7 var_pop",
    "var_samp variance version websearch_to_tsquery width width_bucket xmlagg xmlconcat xmlelement xmlforest",
)
_MYSQL: Final = _names(
    "adddate addtime aes_decrypt aes_encrypt any_value ascii bin bit_and bit_count bit_length bit_or bit_xor cast",
    "char char_length character_length charset collation conv convert convert_tz crc32 curdate current_user curtime",
    "database date date_add date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear elt export_set",
    "extract field find_in_set format from_base64 from_days from_unixtime greatest group_concat hex hour if ifnull",
    "inet6_aton inet6_ntoa inet_aton inet_ntoa insert instr interval isnull json_array json_arrayagg json_contains",
    "json_contains_path json_depth json_extract json_keys json_length json_merge_patch json_merge_preserve",
    "json_object json_objectagg json_overlaps json_pretty json_quote json_search json_table json_type json_unquote",
    "json_valid json_value last_day lcase least left localtime localtimestamp locate log2 lpad make_set makedate",
    "maketime md5 microsecond mid minute month monthname now oct octet_length ord period_add period_diff position",
    "quarter quote rand regexp_instr regexp_like regexp_replace regexp_substr repeat reverse right rpad schema",
    "sec_to_time second session_user sha sha1 sha2 soundex space std stddev stddev_pop stddev_samp str_to_date",
    "strcmp subdate substring_index subtime sysdate system_user time time_format time_to_sec timediff timestamp",
    "timestampadd timestampdiff to_base64 to_days to_seconds truncate ucase uncompress unhex unix_timestamp user",
    "utc_date utc_time utc_timestamp uuid var_pop var_samp variance version week weekday weekofyear weight_string",
    "year yearweek",
)
_SQLITE: Final = _names(
    "acosh asinh atanh changes char cosh date datetime format glob group_concat hex ifnull iif instr json",
    "json_array json_array_length json_each json_error_position json_extract json_group_array json_group_object",
    "json_insert json_object json_patch json_quote json_remove json_replace json_set json_tree json_type json_valid",
    "jsonb julianday last_insert_rowid like likelihood likely octet_length printf quote random randomblob sinh",
    "sqlite_version strftime string_agg tanh time timediff total total_changes trunc typeof unhex unicode unixepoch",
    "unlikely zeroblob",
)
_TSQL: Final = _names(
    "ascii cast charindex checksum choose concat convert count_big datalength dateadd datediff datediff_big",
    "datefromparts datename datepart day db_name eomonth format getdate getutcdate grouping hashbytes iif isdate",
    "isjson isnull isnumeric json_modify json_query json_value left len month nchar newid object_id object_name",
    "parse parsename patindex quotename replicate reverse right space square stdev stdevp str string_agg",
    "string_escape string_split stuff switchoffset sysdatetime sysutcdatetime todatetimeoffset translate try_cast",
    "try_convert try_parse unicode user_name var varp year",
)
HARMLESS: Final = {
    "postgres": _COMMON | _POSTGRES,
    "mysql": _COMMON | _MYSQL,
    "sqlite": _COMMON | _SQLITE,
    "tsql": _COMMON | _TSQL,
}
