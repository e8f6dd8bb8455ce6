-- Settles open waits for some topics with an event, no more than so many, and returns how many.
-- ARGV: name, id, value, how many, a row of the audit log or '', then the topics.
local given, most, now = 0, tonumber(ARGV[5]), clock()
tell(ARGV[6])
for k = 7, #ARGV do
  for _, wait_id in ipairs(redis.call('ZRANGE', topic_of(ARGV[k]), 0, -1)) do
    if given < most and give_event(wait_id, event_of(ARGV[2], ARGV[3]), ARGV[4], now) then
      given = given + 1
    end
  end
end
if given > 0 then
  announce()
end
return given
