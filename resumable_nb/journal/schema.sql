-- resumable_nb store, format 1. Three parts, split at the marker lines: schema.py creates `tables`, `views` and
-- `comments` in a new store; reading.py creates `views` in memory, over a store that it does not trust.
--
-- What the views rest on (each rule is a test):
--  R1 one commit = one INSERT of 1..n rows; seq is dense per thread (count(*) = max(seq)); a gap is damage
--  R2 a row that completes another names it in ref_seq (done, failed, … → started; receipt → effect; decision → request);
--     the checkpoint row of a step completes its `step started` row
--  R3 parent_seq of a checkpoint is in the lineage as of then, never on an abandoned branch: the lineage needs no recursion
--  R4 changes = {"set": {f: v}, "append": {f: [...]}, "drop": {f: true}, "version": n}; `append` only for operator.add lists,
--     the result of every other reducer is a `set`; a field is in one of the three; field names are identifiers
--  R5 the completing row repeats step, key, model, tokens and duration: no account needs a join
--  R6 opening a thread appends a completing row (phase 'lost') for every started row that has none
--  R7 progress: a completing llm, call or effect row may carry changes, a delta since the row before in the same run;
--     parent_seq is then the checkpoint that the run started from. It is never part of the lineage
--  R9 pruning leaves every row: a checkpoint that goes becomes a row ('step', 'pruned') that completes its run, and its
--     changes are merged into the next one that stays; states before the last such row are known at checkpoints only
--  R8 the rows of a fork up to its last ('thread', 'forked') row were made, and paid for, in another thread

-- [tables]
CREATE TABLE journal (
    thread_id                      VARCHAR     NOT NULL,
    seq                            BIGINT      NOT NULL,
    kind                           VARCHAR     NOT NULL,
    phase                          VARCHAR     NOT NULL,
    ts                             TIMESTAMPTZ NOT NULL,
    session_id                     VARCHAR     NOT NULL,
    ref_seq                        BIGINT,
    parent_seq                     BIGINT,
    run_seq                        BIGINT,
    step                           VARCHAR,
    cell_id                        VARCHAR,
    name                           VARCHAR,
    key                            VARCHAR,
    occurrence                     INTEGER,
    duration_ms                    DOUBLE,
    gen_ai_request_model           VARCHAR,
    gen_ai_usage_input_tokens      BIGINT,
    gen_ai_usage_output_tokens     BIGINT,
    gen_ai                         JSON,
    changes                        JSON        USING COMPRESSION zstd,
    request                        JSON        USING COMPRESSION zstd,
    response                       JSON        USING COMPRESSION zstd,
    data                           JSON        USING COMPRESSION zstd,
    body                           BLOB,
    writer                         VARCHAR,
    PRIMARY KEY (thread_id, seq)
);
CREATE TABLE store_info (name VARCHAR PRIMARY KEY, value VARCHAR);

-- [views]
CREATE VIEW threads AS
WITH f AS (
    SELECT thread_id, max(seq) AS forked_seq, arg_max(data->>'from', seq) AS forked_from,
           arg_max(CAST(data->>'seq' AS BIGINT), seq) AS forked_at_seq
    FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY thread_id)
SELECT thread_id, min(ts) AS started_at, max(ts) AS last_at, max(seq) AS last_seq,
       max(seq) FILTER (kind = 'checkpoint') AS last_checkpoint,
       count(*) FILTER (kind = 'llm' AND phase IN ('done', 'partial') AND seq > coalesce(forked_seq, 0)) AS llm_calls,
       coalesce(sum(gen_ai_usage_input_tokens) FILTER (kind = 'llm' AND phase <> 'started' AND seq > coalesce(forked_seq, 0)), 0)::BIGINT AS input_tokens,
       coalesce(sum(gen_ai_usage_output_tokens) FILTER (kind = 'llm' AND phase <> 'started' AND seq > coalesce(forked_seq, 0)), 0)::BIGINT AS output_tokens,
       any_value(forked_from) AS forked_from,
       count(*) = max(seq) AS is_complete, any_value(forked_at_seq) AS forked_at_seq
FROM journal LEFT JOIN f USING (thread_id) GROUP BY thread_id;

CREATE VIEW sessions AS
WITH f AS (
    SELECT thread_id, max(seq) AS forked_seq FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY thread_id),
n AS (
    SELECT thread_id, session_id, lead(data->>'took_over', 1, '') OVER (PARTITION BY thread_id ORDER BY seq) AS next_took_over,
           lead(seq) OVER (PARTITION BY thread_id ORDER BY seq) AS next_seq
    FROM journal WHERE kind = 'session' AND phase = 'opened')
SELECT thread_id, session_id, min(ts) FILTER (kind = 'session' AND phase = 'opened') AS opened_at, max(ts) AS last_at,
       max(ts) FILTER (kind = 'session' AND phase = 'closed') AS closed_at, min(seq) AS first_seq, max(seq) AS last_seq,
       any_value(data->>'host') FILTER (kind = 'session' AND phase = 'opened') AS host,
       any_value(CAST(data->>'pid' AS BIGINT)) FILTER (kind = 'session' AND phase = 'opened') AS pid,
       any_value(data->>'user') FILTER (kind = 'session' AND phase = 'opened') AS user_name,
       any_value(data) FILTER (kind = 'session' AND phase = 'opened') AS data,
       CASE WHEN closed_at IS NOT NULL THEN 'closed'
            WHEN any_value(next_seq) IS NULL OR first_seq <= coalesce(any_value(forked_seq), 0) THEN NULL
            WHEN any_value(next_took_over) = session_id THEN 'taken over' ELSE 'died' END AS ended
FROM journal LEFT JOIN n USING (thread_id, session_id) LEFT JOIN f USING (thread_id)
GROUP BY thread_id, session_id HAVING opened_at IS NOT NULL;

CREATE VIEW steps AS
WITH f AS (
    SELECT thread_id, max(seq) AS forked_seq FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY thread_id)
SELECT thread_id, step,
       arg_max(CASE kind WHEN 'checkpoint' THEN 'done' ELSE phase END, seq)
           FILTER (kind = 'step' OR (kind = 'checkpoint' AND phase IN ('step', 'taken up'))) AS phase,
       count(*) FILTER (kind = 'checkpoint' AND phase = 'step') AS finished_runs,
       max(seq) FILTER (kind = 'checkpoint' AND phase IN ('step', 'taken up')) AS last_checkpoint,
       max(seq) AS last_seq, min(ts) AS first_at, max(ts) AS last_at,
       arg_max(duration_ms, seq) FILTER (kind = 'checkpoint' AND phase = 'step') AS duration_ms,
       count(*) FILTER (kind = 'llm' AND phase IN ('done', 'partial') AND seq > coalesce(forked_seq, 0)) AS llm_calls,
       coalesce(sum(gen_ai_usage_input_tokens) FILTER (kind = 'llm' AND phase <> 'started' AND seq > coalesce(forked_seq, 0)), 0)::BIGINT AS input_tokens,
       coalesce(sum(gen_ai_usage_output_tokens) FILTER (kind = 'llm' AND phase <> 'started' AND seq > coalesce(forked_seq, 0)), 0)::BIGINT AS output_tokens
FROM journal LEFT JOIN f USING (thread_id) WHERE step IS NOT NULL GROUP BY thread_id, step;

CREATE VIEW checkpoints AS
SELECT thread_id, seq, parent_seq, ts, session_id, step, cell_id, phase AS origin, key, duration_ms,
       coalesce(min(coalesce(parent_seq, 0)) OVER (
           PARTITION BY thread_id ORDER BY seq ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) >= seq, true) AS in_lineage,
       changes, data, run_seq
FROM journal WHERE kind = 'checkpoint';

CREATE VIEW state_changes AS
WITH c AS (
    SELECT thread_id, seq, parent_seq, ts, step, in_lineage, false AS is_progress, changes, 'checkpoint' AS kind FROM checkpoints
    UNION ALL
    SELECT thread_id, seq, parent_seq, ts, step, false, true, changes, kind FROM journal
    WHERE kind IN ('llm', 'call', 'effect', 'approval') AND changes IS NOT NULL),
k AS (
    SELECT *, 'set' AS op, unnest(json_keys(changes, '$.set')) AS field FROM c
    UNION ALL SELECT *, 'append', unnest(json_keys(changes, '$.append')) FROM c
    UNION ALL SELECT *, 'drop', unnest(json_keys(changes, '$.drop')) FROM c)
SELECT thread_id, seq, parent_seq, ts, step, in_lineage, is_progress, op, field,
       CASE WHEN op <> 'drop' THEN json_extract(changes, '$.' || op || '."' || field || '"') END AS value, kind
FROM k;

CREATE VIEW findings AS
WITH c AS (
    SELECT thread_id, seq, ts, step, in_lineage, changes->'$.set.findings' AS sv, changes->'$.append.findings' AS av,
           (changes->'$.set.findings') IS NOT NULL OR (changes->'$.drop.findings') IS NOT NULL AS replaces
    FROM checkpoints),
r AS (
    SELECT *, max(seq) FILTER (replaces AND in_lineage) OVER (PARTITION BY thread_id) AS last_set
    FROM c WHERE replaces OR av IS NOT NULL),
e AS (
    SELECT thread_id, seq, ts, step, in_lineage AND seq >= coalesce(last_set, 0) AS is_current,
           coalesce(unnest(from_json(coalesce(av, sv), '["JSON"]')), 'null'::JSON) AS finding
    FROM r WHERE json_type(coalesce(av, sv)) = 'ARRAY')
SELECT thread_id, seq, ts, step, is_current, finding, finding->>'$.claim' AS claim, finding->>'$.quote' AS quote,
       finding->>'$.source' AS source, finding->>'$.location' AS location, finding->>'$.question' AS question,
       finding->>'$.confidence' AS confidence
FROM e;

CREATE VIEW llm_calls AS
WITH f AS (
    SELECT thread_id, max(seq) AS forked_seq FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY thread_id)
SELECT thread_id, seq, ref_seq AS started_seq, ts, session_id, step, cell_id, name, phase, key, occurrence, duration_ms,
       gen_ai->>'provider_name' AS gen_ai_provider_name, gen_ai->>'operation_name' AS gen_ai_operation_name,
       gen_ai_request_model, gen_ai->>'response_model' AS gen_ai_response_model,
       gen_ai->>'response_id' AS gen_ai_response_id,
       gen_ai->>'response_finish_reasons' AS gen_ai_response_finish_reasons,
       gen_ai_usage_input_tokens, gen_ai_usage_output_tokens, response, data, run_seq,
       TRY_CAST(data->>'status' AS INTEGER) AS http_status, data->>'why' AS why
FROM journal LEFT JOIN f USING (thread_id)
WHERE kind = 'llm' AND phase <> 'started' AND seq > coalesce(forked_seq, 0);

CREATE VIEW calls AS
WITH f AS (
    SELECT thread_id, max(seq) AS forked_seq FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY thread_id)
SELECT thread_id, seq, ref_seq AS started_seq, ts, session_id, step, cell_id, run_seq, name, phase, key, occurrence, duration_ms,
       TRY_CAST(data->>'status' AS INTEGER) AS http_status, data->>'why' AS why, response
FROM journal LEFT JOIN f USING (thread_id)
WHERE kind = 'call' AND phase <> 'started' AND seq > coalesce(forked_seq, 0);

CREATE VIEW effects AS
WITH e AS (
    SELECT thread_id, ref_seq, max(seq) AS seq, arg_max(phase, seq) AS phase, arg_max(ts, seq) AS ts,
           arg_max_null(data, seq) AS data, arg_max_null(duration_ms, seq) AS duration_ms
    FROM journal WHERE kind = 'effect' AND phase <> 'started' AND ref_seq IS NOT NULL GROUP BY thread_id, ref_seq)
SELECT s.thread_id, s.seq, s.ts, s.session_id, s.step, s.name, s.key AS idempotency_key,
       CASE WHEN coalesce(e.phase, 'lost') = 'lost' THEN 'in doubt' ELSE e.phase END AS phase,
       CASE WHEN e.phase <> 'lost' THEN e.ts END AS settled_at, CASE WHEN e.phase <> 'lost' THEN e.seq END AS receipt_seq,
       e.data->'receipt' AS receipt, e.duration_ms
FROM journal s LEFT JOIN e ON e.thread_id = s.thread_id AND e.ref_seq = s.seq
WHERE s.kind = 'effect' AND s.phase = 'started';

CREATE VIEW approvals AS
WITH d AS (
    SELECT thread_id, ref_seq, CASE WHEN bool_or(phase = 'refused') THEN 'refused' ELSE arg_min(phase, seq) END AS phase,
           arg_min(ts, seq) FILTER (WHERE phase IN ('approved', 'rejected')) AS ts, arg_min_null(data, seq) AS data
    FROM journal WHERE kind = 'approval' AND phase <> 'requested' AND ref_seq IS NOT NULL GROUP BY thread_id, ref_seq)
SELECT s.thread_id, s.seq, s.ts, s.step, s.name, s.key AS payload_hash, s.occurrence, s.data->>'message' AS message,
       s.data->'payload' AS payload, coalesce(d.phase, 'waiting') AS phase, d.ts AS decided_at, d.data->>'who' AS who,
       d.data->>'comment' AS comment, d.data->'approved_payload' AS approved_payload
FROM journal s LEFT JOIN d ON d.thread_id = s.thread_id AND d.ref_seq = s.seq
WHERE s.kind = 'approval' AND s.phase = 'requested';

CREATE VIEW recoveries AS
SELECT thread_id, seq, ts, session_id, data->>'died' AS died_session_id, duration_ms,
       CAST(data->>'calls_done' AS BIGINT) AS calls_done, CAST(data->>'calls_again' AS BIGINT) AS calls_again,
       CAST(data->>'share' AS DOUBLE) AS share, data
FROM journal WHERE kind = 'recovery';

CREATE VIEW verifications AS
SELECT s.thread_id, s.seq, s.ts AS started_at, d.ts AS ended_at, s.name AS subject, coalesce(d.phase, 'started') AS phase,
       CAST(d.data->>'points' AS BIGINT) AS points, CAST(d.data->>'trials' AS BIGINT) AS trials,
       CAST(d.data->>'trials_passed' AS BIGINT) AS trials_passed,
       CAST(d.data->'recovery_s'->>'median' AS DOUBLE) AS recovery_median_s,
       CAST(d.data->'recovery_s'->>'p95' AS DOUBLE) AS recovery_p95_s,
       CAST(d.data->'recovery_s'->>'worst' AS DOUBLE) AS recovery_worst_s,
       CAST(d.data->'calls_again'->>'worst' AS DOUBLE) AS calls_again_worst,
       CAST(d.data->>'completeness' AS DOUBLE) AS completeness, CAST(d.data->>'largest_loss' AS BIGINT) AS largest_loss,
       CAST(d.data->>'readability' AS DOUBLE) AS readability, d.data->'versions' AS versions, s.data AS settings
FROM journal s LEFT JOIN journal d ON d.thread_id = s.thread_id AND d.kind = 'verification' AND d.ref_seq = s.seq
WHERE s.kind = 'verification' AND s.phase = 'started';

CREATE VIEW verification_runs AS
WITH r AS (
    SELECT *, unnest(json_keys(data, '$.results')) AS criterion FROM journal WHERE kind = 'verification' AND phase = 'trial')
SELECT thread_id, seq, run_seq AS verification_seq, ts, name AS point, occurrence AS nth, CAST(data->>'leg' AS INTEGER) AS leg,
       data->>'about' AS about, CAST(data->>'reached' AS BOOLEAN) AS was_reached, criterion,
       json_extract_string(data, '$.results."' || criterion || '".result') AS result,
       nullif(json_extract_string(data, '$.results."' || criterion || '".why'), '') AS why,
       CAST(data->>'recovery_s' AS DOUBLE) AS recovery_s, CAST(data->>'calls_done' AS BIGINT) AS calls_done,
       CAST(data->>'calls_again' AS BIGINT) AS calls_again, CAST(data->>'share' AS DOUBLE) AS share, data->'versions' AS versions
FROM r;

-- The state after row s: the lineage as of the newest checkpoint at or before s or, where the newest row that changes the
-- state is progress, the lineage as of its parent and the progress of its run up to s.
CREATE MACRO state_at(t, s) AS TABLE
WITH ch AS MATERIALIZED (
    SELECT seq, kind = 'checkpoint' AS is_checkpoint, coalesce(parent_seq, 0) AS parent, run_seq, changes FROM journal
    WHERE thread_id = t AND seq <= s AND s <= (SELECT max(seq) FROM journal WHERE thread_id = t)
      AND (kind = 'checkpoint' OR (kind IN ('llm', 'call', 'effect', 'approval') AND changes IS NOT NULL))),
pruned AS (SELECT coalesce(max(seq), 0) AS last FROM journal WHERE thread_id = t AND kind = 'step' AND phase = 'pruned'),
p AS MATERIALIZED (
    SELECT * FROM (SELECT * FROM ch ORDER BY seq DESC LIMIT 1), pruned
    WHERE CASE WHEN seq < last AND seq <> s THEN error('The state at row ' || s || ' of this thread was pruned; see the view checkpoints for those that are left')::BOOLEAN ELSE true END),
base AS (
    SELECT seq, changes, coalesce(min(parent) OVER (ORDER BY seq ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) >= seq, true) AS live
    FROM ch WHERE is_checkpoint AND seq <= (SELECT CASE WHEN is_checkpoint THEN seq ELSE parent END FROM p)),
cp AS MATERIALIZED (
    SELECT seq, changes FROM base WHERE live
    UNION ALL
    SELECT c.seq, c.changes FROM ch c, p WHERE NOT p.is_checkpoint AND NOT c.is_checkpoint AND c.run_seq IS NOT DISTINCT FROM p.run_seq AND c.parent = p.parent),
keyed AS (
    SELECT seq, changes, 'set' AS op, unnest(json_keys(changes, '$.set')) AS field FROM cp
    UNION ALL SELECT seq, changes, 'drop', unnest(json_keys(changes, '$.drop')) FROM cp),
sets AS (
    SELECT field, max(seq) AS set_seq, arg_max(op, seq) AS op,
           CASE WHEN arg_max(op, seq) = 'set' THEN json_extract(arg_max(changes, seq), '$.set."' || field || '"') END AS value
    FROM keyed GROUP BY field),
apps AS (SELECT seq, changes, unnest(json_keys(changes, '$.append')) AS field FROM cp),
more AS (
    SELECT a.field, flatten(list(from_json(json_extract(a.changes, '$.append."' || a.field || '"'), '["JSON"]') ORDER BY a.seq)) AS items
    FROM apps a LEFT JOIN sets b USING (field) WHERE a.seq > coalesce(b.set_seq, -1) GROUP BY a.field)
SELECT coalesce(b.field, m.field) AS field,
       CASE WHEN m.items IS NULL THEN b.value
            ELSE to_json(list_concat(coalesce(from_json(b.value, '["JSON"]'), []), m.items)) END AS value,
       (SELECT coalesce(arg_max(CAST(changes->>'$.version' AS INTEGER), seq), 1) FROM cp) AS schema_version
FROM sets b FULL JOIN more m USING (field) WHERE m.items IS NOT NULL OR b.op = 'set' ORDER BY field;

-- Started and, as far as the journal knows, still under way.
CREATE MACRO in_flight(t) AS TABLE
SELECT j.seq, j.ts, j.kind, j.step, j.name, j.key, j.run_seq FROM journal j
WHERE j.thread_id = t AND j.phase = 'started'
  AND NOT EXISTS (SELECT 1 FROM journal d WHERE d.thread_id = t AND d.ref_seq = j.seq AND (d.kind = j.kind OR d.kind = 'checkpoint'))
ORDER BY j.seq;

-- The request beside its answer, for the seq of a row of llm_calls.
CREATE MACRO llm_exchange(t, s) AS TABLE
SELECT r.request, d.response, d.body, d.data
FROM journal d LEFT JOIN journal r ON r.thread_id = d.thread_id AND r.seq = d.ref_seq WHERE d.thread_id = t AND d.seq = s;

-- [comments]
COMMENT ON TABLE journal IS 'Everything that happened, in order; rows are only ever added. All views are made from it.';
COMMENT ON COLUMN journal.thread_id IS 'The piece of research, as its user named it';
COMMENT ON COLUMN journal.seq IS 'Number of the row in its thread: 1, 2, 3, … without a gap';
COMMENT ON COLUMN journal.kind IS 'thread, session, step, checkpoint, cell, llm, call, effect, approval, resource, recovery, notice, value, outputs or verification';
COMMENT ON COLUMN journal.phase IS 'How far it is: started, done, failed, partial, lost, requested, approved, …; of a checkpoint, its origin';
COMMENT ON COLUMN journal.ts IS 'When the row was written';
COMMENT ON COLUMN journal.session_id IS 'The opening of the thread that wrote the row';
COMMENT ON COLUMN journal.ref_seq IS 'The row that this one completes';
COMMENT ON COLUMN journal.parent_seq IS 'The checkpoint that this one, or this progress, starts from; 0 is the empty beginning';
COMMENT ON COLUMN journal.run_seq IS 'The started row of the run of a step that the row belongs to';
COMMENT ON COLUMN journal.step IS 'The step, as its user named it';
COMMENT ON COLUMN journal.cell_id IS 'The notebook cell';
COMMENT ON COLUMN journal.name IS 'Function, effect, approval or resource; of an HTTP call its method and path';
COMMENT ON COLUMN journal.key IS 'What a call asks, what a run depends on, or an idempotency key';
COMMENT ON COLUMN journal.occurrence IS 'How often the same was asked before in its step';
COMMENT ON COLUMN journal.duration_ms IS 'Milliseconds that it took';
COMMENT ON COLUMN journal.gen_ai_request_model IS 'OpenTelemetry gen_ai.request.model';
COMMENT ON COLUMN journal.gen_ai_usage_input_tokens IS 'OpenTelemetry gen_ai.usage.input_tokens';
COMMENT ON COLUMN journal.gen_ai_usage_output_tokens IS 'OpenTelemetry gen_ai.usage.output_tokens';
COMMENT ON COLUMN journal.gen_ai IS 'What else OpenTelemetry''s GenAI says of a call, as JSON: provider_name, operation_name, response_model, response_id, response_finish_reasons';
COMMENT ON COLUMN journal.changes IS 'What changed in the state: {"set": {…}, "append": {…}, "drop": {…}, "version": n}';
COMMENT ON COLUMN journal.request IS 'What was asked, without secrets; on the started row only';
COMMENT ON COLUMN journal.response IS 'A JSON answer, character by character';
COMMENT ON COLUMN journal.data IS 'Everything else';
COMMENT ON COLUMN journal.body IS 'Bytes: an answer that is no JSON, or a large value';
COMMENT ON COLUMN journal.writer IS 'Versions of what wrote the row';
COMMENT ON TABLE store_info IS 'Facts about the store: format, store_id, created_at, created_by';
COMMENT ON COLUMN store_info.name IS 'Name of the fact';
COMMENT ON COLUMN store_info.value IS 'The fact';

COMMENT ON VIEW threads IS 'One row per piece of research';
COMMENT ON COLUMN threads.thread_id IS 'The name that its user gave it';
COMMENT ON COLUMN threads.started_at IS 'Time of its first row';
COMMENT ON COLUMN threads.last_at IS 'Time of its newest row';
COMMENT ON COLUMN threads.last_seq IS 'Number of its newest row';
COMMENT ON COLUMN threads.last_checkpoint IS 'seq of its newest checkpoint; NULL before the first';
COMMENT ON COLUMN threads.llm_calls IS 'LLM calls answered in this thread, not those that a fork brought along';
COMMENT ON COLUMN threads.input_tokens IS 'Input tokens that these and failed calls were billed for';
COMMENT ON COLUMN threads.output_tokens IS 'Output tokens that these and failed calls were billed for';
COMMENT ON COLUMN threads.forked_from IS 'The thread that it was forked from; NULL for one of its own';
COMMENT ON COLUMN threads.forked_at_seq IS 'The row of that thread up to which it was copied';
COMMENT ON COLUMN threads.is_complete IS 'False if a row is missing: the store is damaged';

COMMENT ON VIEW sessions IS 'One row per opening of a thread by a kernel or process';
COMMENT ON COLUMN sessions.thread_id IS 'The thread';
COMMENT ON COLUMN sessions.session_id IS 'The opening';
COMMENT ON COLUMN sessions.opened_at IS 'When it was opened';
COMMENT ON COLUMN sessions.last_at IS 'Time of its newest row';
COMMENT ON COLUMN sessions.closed_at IS 'When it was closed; NULL if it is open, was taken over or died';
COMMENT ON COLUMN sessions.first_seq IS 'Its first row';
COMMENT ON COLUMN sessions.last_seq IS 'Its newest row';
COMMENT ON COLUMN sessions.host IS 'The machine';
COMMENT ON COLUMN sessions.pid IS 'The process';
COMMENT ON COLUMN sessions.user_name IS 'The user';
COMMENT ON COLUMN sessions.data IS 'Host, process, versions, notebook, as JSON';
COMMENT ON COLUMN sessions.ended IS 'closed, taken over, or died; NULL while nobody opened the thread after it, and for what a fork brought along';

COMMENT ON VIEW steps IS 'One row per step name in a thread';
COMMENT ON COLUMN steps.thread_id IS 'The thread';
COMMENT ON COLUMN steps.step IS 'The name of the step';
COMMENT ON COLUMN steps.phase IS 'done, started, waiting (for a person), failed, interrupted, lost, retired or pruned; NULL if only calls of it are known';
COMMENT ON COLUMN steps.finished_runs IS 'How often it ran to its end';
COMMENT ON COLUMN steps.last_checkpoint IS 'seq of the newest checkpoint that it made';
COMMENT ON COLUMN steps.last_seq IS 'Its newest row';
COMMENT ON COLUMN steps.first_at IS 'Time of its first row';
COMMENT ON COLUMN steps.last_at IS 'Time of its newest row';
COMMENT ON COLUMN steps.duration_ms IS 'Milliseconds of its newest finished run';
COMMENT ON COLUMN steps.llm_calls IS 'LLM calls answered, in all runs';
COMMENT ON COLUMN steps.input_tokens IS 'Input tokens billed, in all runs';
COMMENT ON COLUMN steps.output_tokens IS 'Output tokens billed, in all runs';

COMMENT ON VIEW checkpoints IS 'One row per checkpoint: the state after a step, or after an edit of it in an ordinary cell';
COMMENT ON COLUMN checkpoints.thread_id IS 'The thread';
COMMENT ON COLUMN checkpoints.seq IS 'Its row; state_at(thread_id, seq) is the state';
COMMENT ON COLUMN checkpoints.parent_seq IS 'The checkpoint that it starts from; 0 is the empty beginning';
COMMENT ON COLUMN checkpoints.ts IS 'When it was made';
COMMENT ON COLUMN checkpoints.session_id IS 'The opening of the thread that made it';
COMMENT ON COLUMN checkpoints.step IS 'The step that made it; NULL for an edit or the start';
COMMENT ON COLUMN checkpoints.cell_id IS 'The cell that made it';
COMMENT ON COLUMN checkpoints.origin IS 'start, step, edit, taken up or migration';
COMMENT ON COLUMN checkpoints.key IS 'Fingerprint of the run: code, inputs and entry state';
COMMENT ON COLUMN checkpoints.duration_ms IS 'Milliseconds of the run';
COMMENT ON COLUMN checkpoints.in_lineage IS 'Whether it is in the chain from the newest checkpoint back to the first';
COMMENT ON COLUMN checkpoints.changes IS 'What it changed in the state';
COMMENT ON COLUMN checkpoints.data IS 'The record of the run';
COMMENT ON COLUMN checkpoints.run_seq IS 'Row at which the run of the step started; the calls of that run have the same';

COMMENT ON VIEW state_changes IS 'One row per changed field of the state';
COMMENT ON COLUMN state_changes.thread_id IS 'The thread';
COMMENT ON COLUMN state_changes.seq IS 'The checkpoint, or the call with progress';
COMMENT ON COLUMN state_changes.parent_seq IS 'The checkpoint that it starts from';
COMMENT ON COLUMN state_changes.ts IS 'When';
COMMENT ON COLUMN state_changes.step IS 'The step';
COMMENT ON COLUMN state_changes.in_lineage IS 'Whether it counts for the newest state; never true for progress';
COMMENT ON COLUMN state_changes.is_progress IS 'True for the state inside a step; the checkpoint of the finished step has the same changes again';
COMMENT ON COLUMN state_changes.op IS 'set (the field has this value), append (it gained these items) or drop (a migration removed it)';
COMMENT ON COLUMN state_changes.field IS 'The field of the state';
COMMENT ON COLUMN state_changes.value IS 'The value, or a list of the items, as JSON';
COMMENT ON COLUMN state_changes.kind IS 'What the row is: checkpoint; or, of progress, llm, call, effect or approval, which have their own views';

COMMENT ON VIEW findings IS 'One row per finding, also of abandoned branches; those of the newest state have is_current';
COMMENT ON COLUMN findings.thread_id IS 'The thread';
COMMENT ON COLUMN findings.seq IS 'The checkpoint that has it';
COMMENT ON COLUMN findings.ts IS 'When that was made';
COMMENT ON COLUMN findings.step IS 'The step that found it';
COMMENT ON COLUMN findings.is_current IS 'Whether it is in the newest state';
COMMENT ON COLUMN findings.finding IS 'The finding as JSON';
COMMENT ON COLUMN findings.claim IS 'What it says; NULL, as the columns below, where a finding has no such field';
COMMENT ON COLUMN findings.quote IS 'Its evidence, word for word';
COMMENT ON COLUMN findings.source IS 'The document that the quote is from';
COMMENT ON COLUMN findings.location IS 'Where it stands there';
COMMENT ON COLUMN findings.question IS 'The sub-question that it answers';
COMMENT ON COLUMN findings.confidence IS 'low, medium or high, as the model says';

COMMENT ON VIEW llm_calls IS 'One row per LLM call that ended, each where it was paid for; sums of tokens are what was billed';
COMMENT ON COLUMN llm_calls.thread_id IS 'The thread that made the call';
COMMENT ON COLUMN llm_calls.seq IS 'Row of its answer, failure or loss; see llm_exchange(thread_id, seq)';
COMMENT ON COLUMN llm_calls.started_seq IS 'Row of its request';
COMMENT ON COLUMN llm_calls.ts IS 'When it ended';
COMMENT ON COLUMN llm_calls.session_id IS 'The opening of the thread';
COMMENT ON COLUMN llm_calls.step IS 'The step; NULL outside any';
COMMENT ON COLUMN llm_calls.cell_id IS 'The cell';
COMMENT ON COLUMN llm_calls.name IS 'Method and path';
COMMENT ON COLUMN llm_calls.phase IS 'done, partial (left early by the reader), failed, or lost (in flight when the process died)';
COMMENT ON COLUMN llm_calls.key IS 'What it asked';
COMMENT ON COLUMN llm_calls.occurrence IS 'How often the same was asked before in the step';
COMMENT ON COLUMN llm_calls.duration_ms IS 'Milliseconds from sending to the end';
COMMENT ON COLUMN llm_calls.gen_ai_provider_name IS 'OpenTelemetry gen_ai.provider.name';
COMMENT ON COLUMN llm_calls.gen_ai_operation_name IS 'OpenTelemetry gen_ai.operation.name';
COMMENT ON COLUMN llm_calls.gen_ai_request_model IS 'OpenTelemetry gen_ai.request.model';
COMMENT ON COLUMN llm_calls.gen_ai_response_model IS 'OpenTelemetry gen_ai.response.model';
COMMENT ON COLUMN llm_calls.gen_ai_response_id IS 'OpenTelemetry gen_ai.response.id';
COMMENT ON COLUMN llm_calls.gen_ai_response_finish_reasons IS 'OpenTelemetry gen_ai.response.finish_reasons';
COMMENT ON COLUMN llm_calls.gen_ai_usage_input_tokens IS 'OpenTelemetry gen_ai.usage.input_tokens';
COMMENT ON COLUMN llm_calls.gen_ai_usage_output_tokens IS 'OpenTelemetry gen_ai.usage.output_tokens';
COMMENT ON COLUMN llm_calls.response IS 'The answer, where it is JSON';
COMMENT ON COLUMN llm_calls.data IS 'HTTP status, kept headers and the like';
COMMENT ON COLUMN llm_calls.run_seq IS 'Row at which the run of the step started that paid for it';
COMMENT ON COLUMN llm_calls.http_status IS 'Status of the response; NULL if none came';
COMMENT ON COLUMN llm_calls.why IS 'Why it failed, or was left early';

COMMENT ON VIEW calls IS 'One row per call that ended and asked no model: @durable functions, and HTTP requests through the client of the library';
COMMENT ON COLUMN calls.thread_id IS 'The thread that made the call';
COMMENT ON COLUMN calls.seq IS 'Row of its result, failure or loss';
COMMENT ON COLUMN calls.started_seq IS 'Row of its start';
COMMENT ON COLUMN calls.ts IS 'When it ended';
COMMENT ON COLUMN calls.session_id IS 'The opening of the thread';
COMMENT ON COLUMN calls.step IS 'The step; NULL outside any';
COMMENT ON COLUMN calls.cell_id IS 'The cell';
COMMENT ON COLUMN calls.run_seq IS 'Row at which the run of the step started';
COMMENT ON COLUMN calls.name IS 'The function; of a request, method and path';
COMMENT ON COLUMN calls.phase IS 'done, partial (left early by the reader), failed, or lost (under way when the process died)';
COMMENT ON COLUMN calls.key IS 'What it asked: function and arguments, or the request';
COMMENT ON COLUMN calls.occurrence IS 'How often the same was asked before in the step';
COMMENT ON COLUMN calls.duration_ms IS 'Milliseconds that it took';
COMMENT ON COLUMN calls.http_status IS 'Status of the response; NULL of a function';
COMMENT ON COLUMN calls.why IS 'Why it failed';
COMMENT ON COLUMN calls.response IS 'The result, where it is JSON';

COMMENT ON VIEW effects IS 'One row per side effect that was started';
COMMENT ON COLUMN effects.thread_id IS 'The thread';
COMMENT ON COLUMN effects.seq IS 'Its started row';
COMMENT ON COLUMN effects.ts IS 'When it was started';
COMMENT ON COLUMN effects.session_id IS 'The opening of the thread';
COMMENT ON COLUMN effects.step IS 'The step';
COMMENT ON COLUMN effects.name IS 'The effect';
COMMENT ON COLUMN effects.idempotency_key IS 'The key that it gave the outside world';
COMMENT ON COLUMN effects.phase IS 'done, failed (it did not happen), not done (somebody looked, and it did not happen), or in doubt: started, and nobody knows whether it happened';
COMMENT ON COLUMN effects.settled_at IS 'When that became known';
COMMENT ON COLUMN effects.receipt_seq IS 'The row that says so';
COMMENT ON COLUMN effects.receipt IS 'What the outside world answered, as JSON';
COMMENT ON COLUMN effects.duration_ms IS 'Milliseconds that it took';

COMMENT ON VIEW approvals IS 'One row per question put to a person';
COMMENT ON COLUMN approvals.thread_id IS 'The thread';
COMMENT ON COLUMN approvals.seq IS 'Row of the question';
COMMENT ON COLUMN approvals.ts IS 'When it was asked';
COMMENT ON COLUMN approvals.step IS 'The step that waits';
COMMENT ON COLUMN approvals.name IS 'The gate';
COMMENT ON COLUMN approvals.payload_hash IS 'Hash of what is to be approved; a decision holds for exactly this';
COMMENT ON COLUMN approvals.occurrence IS 'How often the same was asked before in the step';
COMMENT ON COLUMN approvals.message IS 'The question';
COMMENT ON COLUMN approvals.payload IS 'What is to be approved, as JSON';
COMMENT ON COLUMN approvals.phase IS 'waiting, approved, rejected, refused (edited so that the step could not use it, and asked again) or dropped (nobody has to decide it any more)';
COMMENT ON COLUMN approvals.decided_at IS 'When it was decided; the first decision counts';
COMMENT ON COLUMN approvals.who IS 'Who decided';
COMMENT ON COLUMN approvals.comment IS 'What they said';
COMMENT ON COLUMN approvals.approved_payload IS 'What was approved, where the decider edited it';

COMMENT ON VIEW recoveries IS 'One row per resume after an interruption';
COMMENT ON COLUMN recoveries.thread_id IS 'The thread';
COMMENT ON COLUMN recoveries.seq IS 'Its row';
COMMENT ON COLUMN recoveries.ts IS 'When it ended';
COMMENT ON COLUMN recoveries.session_id IS 'The opening of the thread that resumed';
COMMENT ON COLUMN recoveries.died_session_id IS 'The opening of the thread that was interrupted';
COMMENT ON COLUMN recoveries.duration_ms IS 'Milliseconds from opening the thread to the first new call';
COMMENT ON COLUMN recoveries.calls_done IS 'LLM calls that were done when it resumed';
COMMENT ON COLUMN recoveries.calls_again IS 'Those that had to be done again';
COMMENT ON COLUMN recoveries.share IS 'calls_again as a share of calls_done';
COMMENT ON COLUMN recoveries.data IS 'What was probed, settled and done again, as JSON';

COMMENT ON VIEW verifications IS 'One row per run of `resumable-nb verify`';
COMMENT ON COLUMN verifications.thread_id IS 'The thread that keeps them: verify and the name of the notebook';
COMMENT ON COLUMN verifications.seq IS 'Its row';
COMMENT ON COLUMN verifications.started_at IS 'When it began';
COMMENT ON COLUMN verifications.ended_at IS 'When it ended';
COMMENT ON COLUMN verifications.subject IS 'What was verified';
COMMENT ON COLUMN verifications.phase IS 'done, started, or lost (broken off)';
COMMENT ON COLUMN verifications.points IS 'Durable boundaries that an uninterrupted run passes';
COMMENT ON COLUMN verifications.trials IS 'How often it was killed and resumed';
COMMENT ON COLUMN verifications.trials_passed IS 'Trials in which no check failed';
COMMENT ON COLUMN verifications.recovery_median_s IS 'Seconds from the kill to the first new call: median';
COMMENT ON COLUMN verifications.recovery_p95_s IS 'The same: 95 % are not longer';
COMMENT ON COLUMN verifications.recovery_worst_s IS 'The same: the longest';
COMMENT ON COLUMN verifications.calls_again_worst IS 'Calls that one kill made necessary again, at most';
COMMENT ON COLUMN verifications.completeness IS 'Share of the contexts shown to a model that could be made again from the store, to the letter';
COMMENT ON COLUMN verifications.largest_loss IS 'Answers, given or under way, that one kill lost at most';
COMMENT ON COLUMN verifications.readability IS 'Share of the fields of the state that a person can read in SQL';
COMMENT ON COLUMN verifications.versions IS 'Versions of everything, as JSON';
COMMENT ON COLUMN verifications.settings IS 'How it was asked for, as JSON';

COMMENT ON VIEW verification_runs IS 'One row per trial and check: killed once, resumed to its end, and judged';
COMMENT ON COLUMN verification_runs.thread_id IS 'The thread that keeps them';
COMMENT ON COLUMN verification_runs.seq IS 'The row of the trial';
COMMENT ON COLUMN verification_runs.verification_seq IS 'The verification that it belongs to';
COMMENT ON COLUMN verification_runs.ts IS 'When it was judged';
COMMENT ON COLUMN verification_runs.point IS 'Where it was killed';
COMMENT ON COLUMN verification_runs.nth IS 'At which passage; of `time`, after how many milliseconds';
COMMENT ON COLUMN verification_runs.leg IS 'In which process of the run: how often a person had decided before';
COMMENT ON COLUMN verification_runs.about IS 'What happened there';
COMMENT ON COLUMN verification_runs.was_reached IS 'Whether the point was passed at all';
COMMENT ON COLUMN verification_runs.criterion IS 'The check';
COMMENT ON COLUMN verification_runs.result IS 'pass, fail or n/a';
COMMENT ON COLUMN verification_runs.why IS 'What was wrong; NULL where nothing was';
COMMENT ON COLUMN verification_runs.recovery_s IS 'Seconds from the kill to the first new call';
COMMENT ON COLUMN verification_runs.calls_done IS 'Answers that were kept when it was killed';
COMMENT ON COLUMN verification_runs.calls_again IS 'Calls that the kill made necessary again';
COMMENT ON COLUMN verification_runs.share IS 'calls_again as a share of calls_done';
COMMENT ON COLUMN verification_runs.versions IS 'Versions of everything, as JSON';

COMMENT ON MACRO TABLE state_at IS 'state_at(thread_id, seq): the state after a row, one row per field, its value as JSON; inside a step as it was there';
COMMENT ON MACRO TABLE in_flight IS 'in_flight(thread_id): what was started and, as far as the journal knows, has not ended';
COMMENT ON MACRO TABLE llm_exchange IS 'llm_exchange(thread_id, seq): the request beside its answer, for the seq of a row of llm_calls';
