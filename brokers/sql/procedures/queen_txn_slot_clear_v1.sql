-- queen_txn_slot_clear_v1: truncate the transaction slots whose rows have expired.
--
-- Called by  brokers/store/chore_calls.py, txn_slot_clear(), every few seconds
-- Reads      queen_txn_slot, queen_spool (by queen_spool_hold_v1), queen_system (by
--            queen_txn_floor_v1)
-- Writes     queen_txn slots, queen_txn_slot, queen_txn (by queen_txn_slot_carry_v1 and
--            queen_txn_slot_purge_v1)
-- Locks      the floor's advisory lock, shared; then the slot's table exclusively, for the truncation alone and waiting at most
--            200 ms for it: a push reads every slot of its class, so a long wait here would
--            queue the pushes behind us.
-- Cost       a bounded look at rows of the longest class. Beside that nothing when nothing is due, and
--            next to nothing for a slot without rows; else a truncation.
-- Answers    how many slots were truncated.
--
-- A class fills three slots in turn. In period k the slot of k+1 holds rows of k-2, all
-- older than one span, which is the longest window of the class: they are nobody's. The
-- period is judged again under the lock. Its first five seconds are left alone: a push may have
-- read the clock in the period before, and look for its rows only now.
--
-- Rows of queues that moved to longer slots are carried there in bounded steps first, as long
-- as the windows of their queues are: of all classes, before the first slot is locked.
--
-- A period far ahead was written under a clock that has been put back since; such a slot is left alone
-- for one more turn, and not until that time comes.
--
-- While a spool is replayed, windows reach back from when its records were accepted: all
-- rows are kept longer by the age of the oldest. A server that was started less than
-- p_settle_s ago may have been away for hours and is left alone until the spools of that time
-- had a chance to say so. A slot that is passed over keeps its rows beside those of the next
-- period that fills it, until the period after.

CREATE OR REPLACE FUNCTION queen_txn_slot_clear_v1(
    p_longest_s bigint, p_rows_max integer, p_settle_s integer
)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_slot      queen_txn_slot;
    v_period    bigint;
    v_ready     smallint[] := '{}';
    v_cleared   integer := 0;
    v_floor_s   bigint;
BEGIN
    IF clock_timestamp() < pg_postmaster_start_time() + make_interval(secs => p_settle_s) THEN
        RETURN 0;
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('queen_txn_slot_clear', 0)) THEN
        RETURN 0;
    END IF;
    v_floor_s := greatest(p_longest_s, queen_txn_floor_v1());
    PERFORM queen_txn_slot_purge_v1(v_floor_s, queen_spool_hold_v1(), p_rows_max);

    -- Rows before slots: the lock of a slot lasts until the end, and pushes wait for it.
    PERFORM set_config('lock_timeout', '200ms', true);
    FOR v_slot IN SELECT * FROM queen_txn_slot WHERE span_s > 0 ORDER BY slot LOOP
        v_period := queen_txn_slot_due_v1(v_slot.slot);
        CONTINUE WHEN v_period IS NULL;
        IF v_slot.cleared_period > v_period + 3 THEN
            UPDATE queen_txn_slot SET cleared_period = v_period WHERE slot = v_slot.slot;
        END IF;
        CONTINUE WHEN v_slot.cleared_period >= v_period;
        BEGIN
            -- Without a page there is nothing to truncate, and no plan to be made anew for it.
            IF pg_relation_size(format('queen_txn_%s', v_slot.slot)::regclass) = 0 THEN
                UPDATE queen_txn_slot SET cleared_period = v_period, carry = false
                 WHERE slot = v_slot.slot;
                CONTINUE;
            END IF;
            -- What is carried is committed before anything is truncated: a push whose snapshot
            -- is older than the truncation would otherwise see a row in neither place.
            CONTINUE WHEN v_slot.carry AND queen_txn_slot_carry_v1(
                v_slot.slot, v_floor_s, queen_spool_hold_v1(), p_rows_max) > 0;
            v_ready := v_ready || v_slot.slot;
        EXCEPTION WHEN lock_not_available THEN
            NULL;  -- Busy now: the next step tries again, a whole period long.
        END;
    END LOOP;

    FOR v_slot IN SELECT * FROM queen_txn_slot WHERE slot = ANY (v_ready) ORDER BY slot LOOP
        BEGIN
            EXECUTE format('LOCK TABLE queen_txn_%s IN ACCESS EXCLUSIVE MODE', v_slot.slot);
            v_period := queen_txn_slot_due_v1(v_slot.slot);
            IF v_period > v_slot.cleared_period THEN
                EXECUTE format('TRUNCATE queen_txn_%s', v_slot.slot);
                UPDATE queen_txn_slot SET cleared_period = v_period, carry = false
                 WHERE slot = v_slot.slot;
                v_cleared := v_cleared + 1;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN v_cleared;
END;
$$;
