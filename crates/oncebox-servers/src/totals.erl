spawn(fun() ->
    {ok, Listener} = gen_tcp:listen(PORT, [{ip, {127, 0, 0, 1}}, list, {packet, line}, {active, false}, {reuseaddr, true}]),
    Total = fun(Name) ->
        case rabbit_amqqueue:lookup({resource, <<"/">>, queue, list_to_binary(Name)}) of
            {ok, Queue} ->
                case amqqueue:get_type(Queue) of
                    rabbit_quorum_queue ->
                        {ok, {_, Count}, _} = ra:local_query(amqqueue:get_pid(Queue), fun rabbit_fifo:query_messages_total/1),
                        Count;
                    _ ->
                        [{messages, Count}] = rabbit_amqqueue:info(Queue, [messages]),
                        Count
                end;
            _ -> 0
        end
    end,
    Serve = fun Serve(Socket) ->
        case gen_tcp:recv(Socket, 0) of
            {ok, Line} ->
                gen_tcp:send(Socket, io_lib:format("~p~n", [Total(string:trim(Line))])),
                Serve(Socket);
            _ -> ok
        end
    end,
    Accept = fun Accept() ->
        {ok, Socket} = gen_tcp:accept(Listener),
        spawn(fun() -> Serve(Socket) end),
        Accept()
    end,
    Accept()
end).
