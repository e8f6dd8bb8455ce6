-- True if a run with this mark and status is paused, as model.pausing says.
local function is_pause(mark, status)
  return mark and not FINAL[status] and string.sub(mark, 1, 14) == 'paused: since '
end

-- Keeps workers from a run with a mark, or no longer.
local function keep_mark(run_id, n, mark)
  if mark then
    redis.call('HSET', row_of(run_id), 'repair', mark)
    redis.call('ZADD', P .. 'repair', n, run_id)
  else
    redis.call('HDEL', row_of(run_id), 'repair')
    redis.call('ZREM', P .. 'repair', run_id)
  end
end

